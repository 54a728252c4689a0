"""Exchange with the package PEFT through files. PEFT itself need not be installed."""

from pvera.peft.export import export_peft
from pvera.peft.importing import import_peft

__all__ = ["export_peft", "import_peft"]
