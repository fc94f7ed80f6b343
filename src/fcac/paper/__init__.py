"""The paper's evaluation: data sets, grid of trials, statistics, tables and figures."""
