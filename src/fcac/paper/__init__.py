"""The paper's evaluation: data sets, rivals, grid of trials, statistics, tables, figures and attacks.

Nothing else in the package imports this one. It needs the extra ``experiments``.
"""
