"""Installation of batch_rl for its data: no TensorFlow, Dopamine, flax or TFP."""

import os
import pathlib
import runpy

os.chdir(pathlib.Path(__file__).resolve().parents[1])
settings = runpy.run_path('setup.py')
# The label tells it from the whole installation, in `pip list` too.
settings['setup'](settings['DATA'], f'{settings["VERSION"]}+data')
