"""The report: statistics, tables, figures, the audit of the paper, and the page of claims."""
