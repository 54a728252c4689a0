"""The report: statistics, tables, figures, the audit of the paper, the protocol ledger, and the page of claims."""
