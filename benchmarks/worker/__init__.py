"""The worker: latency, cancellation, memory, many small jobs."""
