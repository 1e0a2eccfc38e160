"""Every setting of the gateway: one table, read from `TIDINGS_*` variables or from flags of `tidings serve`."""

from __future__ import annotations

from tidings_gateway.settings.environment import SettingsError, SettingsProblem, load_settings
from tidings_gateway.settings.table import Settings
from tidings_gateway.settings.values import LOCALHOST, Listen

__all__ = ["LOCALHOST", "Listen", "Settings", "SettingsError", "SettingsProblem", "load_settings"]
