import concurrent.futures

import pytest


@pytest.fixture(scope='module')
def pool():
  with concurrent.futures.ThreadPoolExecutor(2) as threads:
    yield threads
