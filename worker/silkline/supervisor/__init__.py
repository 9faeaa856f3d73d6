"""The worker. Start reading at `worker.py`.

worker.py → job_run.py → process.py is the way of a job into its subprocess; checkpoints.py is the
way of its results out. spawn.py starts processes, outcome.py names how they ended, and
lease_files.py lets the next worker release the jobs of a killed one.
"""
