"""Data sets: images and texts, decoded once, checked before they are used.

A *data set* is a folder of images or texts below the root of its suite: data/vtab-1k, data/demo
(synthetic), data/text (GLUE) or data/own. A *task* is what is to be told of them: title, category
and classes. Each data set has one task, and one name is that of both (`tasks`).

A *split* is one of a data set's three parts, "train", "validation" and "test". Images have a
*split file* for each, with VTAB-1k's names (`split_files`); texts have GLUE's files (`glue`).

The *store* keeps decoded images on disk (`store`). What is *read* comes from a file as it stands;
what is *loaded* is ready for a backbone (`inputs`). *Installing* puts a data set where it is read:
one's own pictures (`custom`), the synthetic tasks (`suite`) or VTAB-1k, which `vtab` checks.
"""
