from batch_rl.dataset.commands import console


def test_sizes_have_three_digits_and_the_largest_unit():
  counts = None, 999, 999_499, 999_500, 1_234_000, 999_600_000_000
  texts = '?, 999 B, 999 kB, 1 MB, 1.23 MB, 1.0 TB'
  assert ', '.join(map(console.size, counts)) == texts
