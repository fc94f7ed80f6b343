"""Generated tables with known clusters, with which the judge of borders is fitted and tested."""
