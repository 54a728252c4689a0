"""The experiment: what a profile trains and analyses, and what executes it.

A *job* leaves one result file. It is a *run*, which is one training, or an *analysis* of adapters
that runs have left. A *grid* gives hyperparameters the values that are searched; a *point* of it is
one combination of values, as {hyperparameter: value}. A run has a *member* for each point, a model
of its own; all train side by side over one frozen backbone, and one of them is chosen.

One run on its way from YAML to JSON:

1. `profiles`: `Profile.read` reads experiments/profiles/<name>.yaml, on its base, and checks it.
2. `run_settings`: `list_planned_runs` names what an experiment trains, a `PlannedRun` for each
   backbone, seed, folder, data set and method. `resolve` gives it its settings, from the profile,
   the protocol, what searches have chosen, and the grid: a `Run`, with a `MethodConfig` per member.
   One whose search has not chosen yet is left out.
3. `jobs`, `analyses`: a `Run` and an `Analysis` are `Job`s. The job knows its result file, compares
   its configuration with that of the file (`Job.state`), and computes it (`Job.execute`).
4. `plan`: a `Plan` lists the jobs of the experiments and analyses that a script names, and tells
   which are missing.
5. `worker`: each worker claims one missing job after the other, executes it, and lists again, as
   what it found lets more start. Workers are processes here, or a job array of SLURM (`cluster`).
   `status` counts the jobs in each state.
6. `training`: `Run.compute` loads backbone and data and calls `fit`, which takes steps
   (`optimization`; on a GPU `replay`), validates (`prediction`) and ends members (`stopping`). The
   chosen member is tested.
7. `results`: `write` leaves the JSON file, a `records.Record`, with predictions and adapter.

experiments/execution.py connects 4 and 5. `saved_adapters` evaluates and predicts with an adapter
alone, `cost_records` counts without training, and `predictor_comparison` is one of the analyses.
"""
