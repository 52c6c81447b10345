"""Compiled inner loops: arrays in, arrays out, no objects, no policy.

This is the only package that imports numba. A kernel works on state that its caller owns,
changes it in place, and also runs uncompiled (``NUMBA_DISABLE_JIT=1``).
"""
