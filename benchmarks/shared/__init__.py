"""What several benchmarks need: reports, Postgres servers, local stacks."""
