"""Adaptive resonance theory: CA+, CAE and CAE_FC over one network state.

The kernels (:mod:`~fcac.art.learn`, :mod:`~fcac.art.nearest`, :mod:`~fcac.art.simd`) are plain functions over arrays;
:class:`~fcac.art.network.Network` is the only state they modify; :mod:`~fcac.art.clusterers` wraps it in scikit-learn
estimators.
"""
