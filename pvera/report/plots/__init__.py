"""Figures of numbers that `pvera.report.tables` computed."""
