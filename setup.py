"""Installation of batch_rl. Each exact version has its reason beside it.

`data_only/` installs the same modules with the requirements in `DATA` only.
"""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(
  r"^__version__ = '(.+)'$", (ROOT / 'batch_rl/__init__.py').read_text(), re.M
).group(1)

# What `batch_rl.dataset` needs.
DATA = [
  'numpy>=2.1,<2.5',
  'opencv-python>=4.10.0.84',  # the first built for NumPy 2
  # Data at rest: lz4 packs frames; zstandard trains its dictionary; isal inflates
  # 5 to 10 times as fast as zlib.
  'lz4>=4.4,<5',
  'zstandard>=0.23',
  'isal>=1.7',
  'xxhash>=3.5',  # fingerprints of runs, and verification
  # RL Unplugged's files: checksums, by the first with wheels for Python 3.13, and
  # Examples, with TensorFlow's own bound.
  'google-crc32c>=1.7',
  'protobuf>=6.31.1',
  # Compiles the sampler. 0.61 is the first for NumPy 2.1 and Python 3.13; each release
  # has an upper bound for NumPy of its own.
  'numba>=0.61',
  'matplotlib>=3.9.2',  # the first with wheels for Python 3.13
  'pillow>=10.4',  # likewise
  'absl-py>=2.1',
  'psutil>=5.9.4',
  'tqdm>=4.66',
  # `dataset fetch`: HTTP, and folders or other URLs.
  'requests>=2.31',
  'fsspec>=2024.6',
  'tabulate>=0.10',  # 0.9 fails for a table without rows
]
ALL = [
  *DATA,
  # The agents subclass it and dopamine_compat.py mends this very version.
  'dopamine-rl==4.1.2',
  # Seen to work; each TensorFlow release has broken Dopamine in a new way.
  'tensorflow==2.21.*',
  'tf_keras==2.21.*',  # CONTRIBUTING.md says what fails with Keras 3
  # jax 0.7 dropped what tensorflow-probability 0.25 reads, and Dopamine
  # imports that; flax is the last one that takes this jax.
  'tensorflow-probability==0.25.0',
  'jax==0.6.2',
  'jaxlib==0.6.2',
  'flax>=0.10.6,<=0.11.2',
  'gym==0.25.2',  # 0.26 changed the step() that Dopamine's gym_lib calls
  'gymnasium>=1.1,<2',  # 1.1 brought AutoresetMode
  # ROM md5s and the equality of frames with atari-py hold for this one.
  'ale-py==0.12.1',
  # The first with wheels for Python 3.13; rliable's dependency arch does not take 3.
  'pandas>=2.2.3,<3',
  'tensorboard>=2.20',  # Dopamine uses it and does not declare it
  'gin-config>=0.5',
  'rliable>=1.2,<2',  # the report's aggregates and intervals
  'pyyaml>=6.0.2',  # the first with wheels for Python 3.13
  'rich>=13',
]

# `python -m batch_rl.dataset export --format=rlds`.
RLDS = [
  'tensorflow-datasets>=4.9.10,<5',  # 4.9.10 was seen to work with protobuf 7
  # TFDS imports it to make its own datasets, and does not declare it.
  'importlib-resources>=6',
  # Its older code fails with the protobuf of TensorFlow, but permits it.
  'tensorflow-metadata>=1.21',
]
# 0.5.4 is the first that was seen to store frames without loss (jpeg_encoding);
# the extra does not bring the pillow that its HDF5 storage imports.
# It needs Python 3.11.
MINARI = [
  "minari[hdf5]>=0.5.4,<0.6 ; python_version >= '3.11'",
  'pillow>=10.4',
]

# The report's scores are of this version, and batch_rl/minatar reads its modules.
MINATAR = ['minatar==1.0.15']
# `dataset fetch` from gs://; seen to work: 2026.10.1, with fsspec 2026.9.0.
FETCH = ['gcsfs>=2024.6']

SWEEP = [
  'ray>=2.40',
  'submitit>=1.5.4',  # earlier ones import pkg_resources, which setuptools dropped
]

# Loggers of runs; seen to work: 0.31 and 3.17. MLflow 3 has the current API of runs.
WANDB = ['wandb>=0.20']
MLFLOW = ['mlflow>=3']

# `make docs`. Equations become MathML, which browsers draw without a script.
DOCS = ['mkdocs-material>=9.7', 'mkdocstrings[python]>=1', 'l2m4m>=1.0.4']

EXTRAS = {
  'rlds': RLDS,
  'minari': MINARI,
  'minatar': MINATAR,
  'cuda': ['tensorflow[and-cuda]==2.21.*'],
  # The ROMs that the dataset was made with. Builds from source: needs cmake,
  # a C++ compiler and the zlib headers.
  'legacy-roms': ['atari-py==0.2.5'],
  # Many runs on this machine, a cluster, or SLURM.
  'sweep': SWEEP,
  'fetch': FETCH,
  'wandb': WANDB,
  'mlflow': MLFLOW,
  # `batch_rl.dataset.torch`; seen to work: 2.13.
  'torch': ['torch>=2.13'],
  'docs': DOCS,
  'dev': [
    'pytest>=8',
    'pytest-timeout>=2.3',
    'pytest-xdist>=3.6',
    'hypothesis>=6.100',
    'ruff>=0.12',
    'mypy>=1.15',
    'nbclient>=0.10',  # runs the notebooks
    'ipykernel>=6.29.5',
    *RLDS,
    *MINARI,
    *MINATAR,
    *SWEEP,
    *FETCH,
  ],
}

REPOSITORY = 'https://github.com/google-research/batch_rl'


def setup(requirements: list[str], version: str = VERSION) -> None:
  """Installs all modules, with the given requirements."""
  setuptools.setup(
    # A folder of this name in the current directory, such as a clone, would otherwise
    # hide an editable installation.
    options={'editable_wheel': {'mode': 'compat'}},
    name='batch_rl',
    version=version,
    description='Offline reinforcement learning on the DQN Replay Dataset',
    author='The Dopamine Authors',
    url=REPOSITORY,
    project_urls={
      'Changelog': f'{REPOSITORY}/blob/master/CHANGELOG.md',
      'Issues': f'{REPOSITORY}/issues',
      'Paper': 'https://arxiv.org/abs/1907.04543',
    },
    keywords='reinforcement-learning offline-rl batch-rl atari dqn tensorflow dopamine',
    classifiers=[
      'Development Status :: 4 - Beta',
      'Intended Audience :: Science/Research',
      'Operating System :: POSIX :: Linux',
      *(
        f'Programming Language :: Python :: 3.{minor}'
        for minor in range(10, 14)
      ),
      'Topic :: Scientific/Engineering :: Artificial Intelligence',
      'Typing :: Typed',
    ],
    long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    # The tests run from a clone or an sdist, and in an editable installation.
    packages=setuptools.find_packages(
      include=['batch_rl', 'batch_rl.*'], exclude=['batch_rl.tests*']
    ),
    entry_points={'console_scripts': ['batch-rl = batch_rl.__main__:main']},
    # fingerprints/ and scores/ are no packages, hence their paths.
    package_data={
      '': [
        *('*.gin', 'scores/*.csv', 'fingerprints/*.json'),
        *('*.csv', '*.yaml', 'py.typed'),
        *('page.*', 'methods.txt', 'plots.mplstyle'),  # of reports
      ]
    },
    python_requires='>=3.10,<3.14',
    install_requires=requirements,
    extras_require=EXTRAS,
  )


if __name__ == '__main__':
  setup(ALL)
