"""The kinds of remote copies, chosen by URL."""

from batch_rl.dataset.fetch import remotes


def connect(url: str, timeout: float) -> remotes.Remote:
  """Returns the remote at a URL or a local path.

  Args:
    url: Root of a dataset.
    timeout: Seconds without data before an HTTP request fails.

  Raises:
    ValueError: If the kind of URL is unknown, or needs a missing package.
  """
  if url.startswith(('http://', 'https://')):
    from batch_rl.dataset.fetch import http_remote  # slow to import

    return http_remote.HttpRemote(url, timeout)
  from batch_rl.dataset.fetch import fsspec_remote

  return fsspec_remote.FsspecRemote(url)
