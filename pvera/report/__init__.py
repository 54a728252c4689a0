"""The report: statistics, tables, figures, the audit of the paper, and the page of claims.

How to add to it, each in one place and one cell of a notebook:

- A **table**: a function in `tables/` that ends in `_table`. It computes a frame of numbers from
  records and returns a `Table` of it; the cell is `page.show_each(results, tables.my_table)`.
- A **claim** on results that others use: an entry of `claims.TOPICS`; one on a difference of
  components is an entry of `contrasts.CONTRASTS` as well. `page.show_claims` and the page of
  claims show it.
- An **analysis** of adapters: the study makes it (docs/extending.md); here it is a table, whose
  results the cell reads by `page.read("my_analysis", load=load_analyses)`.

A *component* is what tables of differences compare: a method, or a variant of VeRA or PVeRA that a
profile names, such as "no_kl".

From below: `text`, `scores` and `table` (frames of numbers, and how they are written), `settings`
(result files by profile and backbone), `statistics`, `verdicts` and `contrasts`, `tables`, `plots`,
and `notebook`, which the notebooks in analysis/ use.
"""
