"""The report: from result files to tables, figures and claims.

1. `settings.ResultFiles.read` returns the records of an experiment by setting: a profile on one of
   its backbones. A record is a dictionary here, see below; an analysis has arrays too.
2. `scores.score_frame` makes one frame of them: a row per data set and seed, a column per method.
3. A function in `tables/` computes numbers from records or such a frame; one that ends in `_table`
   returns them as a `table.Table`, which is written as Markdown, CSV and LaTeX.
4. A function in `plots/` draws the same numbers; most draw one shape, see `plots.base.forest`.
5. A claim compares columns of a frame: `contrasts` subtracts them in pairs, `statistics` has the
   intervals, `verdicts` the words, and `claims.TOPICS` lists all claims.
6. `notebook.Page` does this in the notebooks of analysis/: `page.read`, then `page.show_each`,
   `page.draw_each` and `page.show_claims`. A new table is a function and a cell with
   `page.show_each(results, tables.my_table)`; docs/extending.md shows a new analysis.

The record of a training has the keys of `study.records.Record`, among them:

    "dataset", "category", "method", "seed", "profile", "backbone"
    "config": "members": a list; "method" of each: the hyperparameters that it trained with
    "members": a list in the same order; of each "grid", "best_validation_loss", "epochs", ...
    "chosen": "member", its index in both lists, and its "grid"; None where all diverged
    "test": "accuracy", "ace", ... of the chosen member; None where all diverged

A *component* is what tables of differences compare: a method, or a variant of VeRA or PVeRA that a
profile names, such as "no_kl".
"""
