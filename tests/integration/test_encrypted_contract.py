"""The contract of the storage once more, on content that is sealed (guarantee §12.11). `make chaos` runs the rest."""

import pytest

from tests.integration.test_store_contract import *  # noqa: F403
from tests.support.under_a_key import _under_a_key as _under_a_key

pytestmark = pytest.mark.in_turn("module_storage_url")
