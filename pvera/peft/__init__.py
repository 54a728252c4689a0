"""Exchange with the package PEFT through files, and the KL term of its PVeRA. PEFT itself need not be installed."""

from pvera.peft.export import export_peft
from pvera.peft.importing import import_peft
from pvera.peft.kl import kl_divergence, track_kl

__all__ = ["export_peft", "import_peft", "kl_divergence", "track_kl"]
