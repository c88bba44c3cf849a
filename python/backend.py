"""Builds the package by the setuptools of the system, which pip hides from a build, so that
`pip install ./python` needs no network."""
import sys

sys.path.append("/usr/lib/python3/dist-packages")  # The packages of the build come first.

from setuptools.build_meta import *  # noqa: E402, F401, F403


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel
