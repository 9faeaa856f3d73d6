"""The queue, next to a bare table and to other queues on Postgres."""
