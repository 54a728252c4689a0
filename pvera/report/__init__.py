"""What results say: statistics, tables, figures, the audit of the paper, and the ledger."""
