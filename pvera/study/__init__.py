"""The experiment: protocols, profiles, runs, and what executes them."""
