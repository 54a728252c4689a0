"""Tables of the analyses, each computed first, then rendered.

names: full names of short keys. verdicts: claims, judged by intervals. benchmark: accuracies, stars and grid choices
(Tables 1, 4 and 6 to 8). pairs: leads with intervals over test images. against_paper: the paper's numbers beside ours.
profile: all tables of one profile. comparison: statistical support of a ranking. components: what in PVeRA does it.
ablations: rank and position (Tables 2 and 3). language: Appendix D. cost: computational efficiency (Figure 3).
calibration: Figure 4. uncertainty: draws and intervals. uncertainty_baselines, beta_effects: draws against other ways
to uncertainty. out_of_distribution, latents: Section 4.4. duration: longer trainings. protocol: effects of the
protocols' switches. precision, wall_time: the price of speed.
"""
