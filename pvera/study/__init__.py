"""The experiment: protocols, profiles, runs, and what executes them.

profiles (YAML)     what is trained
search              which trainings that are, each with its settings
plan                with the analyses of trained adapters: which of them can start
worker, cluster     execute them, here or on SLURM; status counts them
jobs                each of them, and its result file
training            what a training computes, with optimization (a step), stopping and prediction
results, records    the files that are left
evaluation          saved adapters on images
"""
