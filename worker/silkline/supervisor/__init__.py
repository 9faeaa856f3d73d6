"""The worker. Start reading at `worker.py`.

A job goes through worker.py → job_run.py → process.py into its subprocess; its results come back
through checkpoints.py. spawn.py starts processes, outcome.py names how they ended, and
lease_files.py lets the next worker release the jobs of a killed one.
"""
