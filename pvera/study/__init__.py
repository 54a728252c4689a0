"""The experiment: protocols, profiles, runs, and what executes them.

profiles (YAML)     what is trained
trainings           the trainings of a profile, each with its settings
plan                the trainings and analyses that can start
worker, cluster     execute them, here or on SLURM; status counts them
jobs                one training or one analysis, and its result file
training            what a training computes, with optimization (a step), stopping and prediction
results, records    the files that are left
evaluation          saved adapters on images
"""
