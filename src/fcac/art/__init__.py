"""Adaptive resonance theory: CA+, CAE and CAE_FC over one network state.

The kernels (:mod:`~fcac.art.learn`, :mod:`~fcac.art.nearest`, :mod:`~fcac.art.simd`) are plain functions over arrays;
:class:`~fcac.art.network.Network` is the one state they change; :mod:`~fcac.art.clusterers` makes scikit-learn
estimators of it.
"""
