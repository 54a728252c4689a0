"""The experiment: protocols, profiles, runs, and what executes them.

profiles (YAML)     what is trained
search              which trainings that are, each with its settings
plan                with the analyses of trained adapters: which of them can start
worker, cluster     execute them, here or on SLURM
jobs                each of them
training            what a training computes
results, records    the files that are left
"""
