"""Faults in secure aggregation that the audit of its transcript must find, each by the attack it is named after."""

import numpy as np

from fcac.aggregation.masks import own_mask
from fcac.aggregation.member import Member
from fcac.aggregation.pooled import site_vector
from fcac.aggregation.transcript_attacks import TOLERANCE, Fault, _plain_vector


def _share_left_out(place, rows, request, n_shares, sampler):
    return _plain_vector(rows, request) if place == 0 else site_vector(rows, request, n_shares, sampler)


def _sized_for_drops_only(place, rows, request, n_shares, sampler):
    return site_vector(rows, request, n_shares + TOLERANCE, sampler)


def _exact_share(place, rows, request, n_shares, sampler):
    """Noise of the right width, but the record's site adds its own part of the counts a hundred times."""
    vector = site_vector(rows, request, n_shares, sampler)
    return vector + 99 * (_plain_vector(rows, request) - _plain_vector(rows[:20], request))


class _ReusesMasks(Member):
    """A site whose masks are the same in every step."""

    def _add_masks(self, session, masked, step, step_context, active, me):
        super()._add_masks(session, masked, step, step_context, active, me)
        # what the hub will remove stays as it is; what hides the site is taken from the first step
        wanted, used = (np.zeros_like(masked) for _ in range(2))
        super()._add_masks(session, wanted, step, step_context, active, me)
        kept = self.__dict__.setdefault("first", wanted.copy())
        used[: min(len(kept), len(used))] = kept[: len(used)]
        masked += used - wanted


class _NoPairMasks(Member):
    """A site that adds only its own mask, which the hub learns."""

    def _add_masks(self, session, masked, step, step_context, active, me):
        masked += own_mask(session.own_seeds[step - 1], step_context, len(masked))


#: Faults by name; every one is found by the attack it is named after.
FAULTS = {
    "noise: one site leaves out its share": Fault(vector=_share_left_out),
    "noise: shares sized for drops, not for drops beside colluders": Fault(vector=_sized_for_drops_only),
    "records: one site counts a record a hundred times": Fault(vector=_exact_share),
    "masks: the same in every step": Fault(member=_ReusesMasks),
    "masks: none between sites": Fault(member=_NoPairMasks),
    "range: totals modulo 2**32": Fault(bits=32),
}
