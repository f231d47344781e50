"""The guards of the protocol, each named by the mutant that removes it.

A mutant is the protocol with one guard taken out; `mutant_bounds.py` holds a small search that
catches it. A new guard gets a mutant here. A mutant that no search can catch removes something
that guards nothing.
"""

from __future__ import annotations

from typing import Final, Literal

Mutant = Literal[
    "no_heal",
    "no_exact",
    "no_pin_check",
    "no_read_set",
    "no_op_row",
    "blind_cas",
    "early_fail",
    "ack_on_answer",
    "fwd_inexact",
    "fwd_any_attempt",
    "fwd_no_pins",
    "fwd_no_read_set",
    "no_fence",
    "drop_effectless",
    "restore_stale",
    "rpub_blind",
    "side_after_stage",
    "cl_no_sidecars",
    "cl_sidecars_first",
    "cl_pins_first",
    "cl_above_pin",
    "floor_moves",
    "side_gap",
    "mclean_no_ckpt",
    "ignore_foreign",
    "l1_any",
    "l1_no_heal",
    "par_first",
    "l3_rebase",
    "abort_on_answer",
    "fence_on_answer",
    "no_verify",
    "fold_no_verify",
    "cl_no_verify",
    "keep_disagree",
    "hint_head",
    "mclean_head",
    "fold_no_lookup",
    "fold_drop_first",
    "fold_drop_all",
    "fold_minop_first",
    "fold_hist_first",
    "fold_stale_drop",
    "opt_any_chain",
    "opt_no_pins",
    "opt_any_file",
    "opt_gap",
    "maintenance_blind_pins",
    "maintenance_inexact",
    "prune_no_watermark",
    "strict_put_over",
    "merge_kept",
    "merge_unread",
    "merge_indexed",
    "combine_unarmed",
    "combine_stale",
    "combine_conflicting",
    "combine_inexact",
    "combine_undecided",
    "combine_hole",
    "combine_no_read_set",
    "combine_no_row",
    "combine_read_before",
    "combine_kept_report",
]

MUTANTS: Final[dict[Mutant, str]] = {
    # the writer and its publish
    "no_heal": "the writer commits on whatever HEAD it finds, without restoring the pin",
    "no_exact": "the writer publishes a version that is not its base plus one",
    "no_pin_check": "a publish does not expect the pins of the written tables",
    "no_read_set": "a publish expects the pins of the written tables only, not of those it read",
    "no_op_row": "a publish does not check that its own operation row is absent",
    "blind_cas": "a publish does not expect the manifest version it read",
    "early_fail": "the writer reports failure without a decision row",
    "ack_on_answer": "the writer acknowledges on the publish's answer, without reading its row",
    "side_after_stage": "the sidecar is written after the data files",
    "floor_moves": "a retry that re-uses its files moves the sidecar's floor to the new pins",
    "side_gap": "a retry that re-uses its files deletes its sidecar and writes a new one",
    "ignore_foreign": "the writer heals over versions that nobody in the protocol wrote",
    # the sweep
    "fwd_inexact": "the sweep takes any own version for the effect, without testing its chain",
    "fwd_any_attempt": "the sweep takes versions of an earlier attempt for those of the last",
    "fwd_no_pins": "the sweep rolls forward without comparing the pins with the sidecar",
    "fwd_no_read_set": "the sweep rolls forward comparing the pins of the written tables only",
    "no_fence": "the sweep rolls back without writing the operation row first",
    "drop_effectless": "the sweep deletes a sidecar without effects and without an operation row",
    "restore_stale": "the sweep restores and publishes the sidecar's pin over the current one",
    "rpub_blind": "the sweep publishes a restored version without expecting the pin it restored",
    # cleanup, checkpoint, watermark
    "cl_no_sidecars": "cleanup ignores sidecars",
    "cl_sidecars_first": "cleanup lists sidecars before versions",
    "cl_pins_first": "cleanup reads pins before sidecars; matters only with the rule 'unpinned'",
    "cl_above_pin": "cleanup deletes unpinned versions above the pin too, and ignores sidecars",
    "mclean_no_ckpt": "manifest versions are cleaned without a checkpoint version above them",
    "prune_no_watermark": "rows of failed operations are deleted without raising min_op",
    # L1, L4: direct commit, parallel tables
    "l1_any": "the writer publishes whatever version its direct commit returned",
    "l1_no_heal": "after an inexact direct commit the writer commits again without healing",
    "par_first": "the writer publishes when its first table has committed, without joining",
    # L3: publish by overwrite
    "l3_rebase": "a refused overwrite is put at the next free slot without reading the rows again",
    "abort_on_answer": "the writer reports failure on its abort's answer, without reading the row",
    "fence_on_answer": "the sweep goes on after the answer of its publish, without reading the row",
    "no_verify": "a manifest version is believed though it may no longer be among the newest K",
    "fold_no_verify": "the folder alone believes an unverified manifest version",
    "cl_no_verify": "table cleanup alone takes its pins from an unverified manifest version",
    "keep_disagree": "manifest cleanup keeps fewer versions than readers assume",
    "hint_head": "the latest manifest version comes from a hint file that a late put moves back",
    "mclean_head": "manifest cleanup does not keep the newest version",
    # fold
    "fold_no_lookup": "publish, sweep and outcome look into the manifest only, not into history",
    "fold_drop_first": "rows leave the manifest before they are in the history table",
    "fold_drop_all": "the fold drops every committed row it finds, not only those it inserted",
    "fold_minop_first": "the watermark is tested before the history table is read",
    "fold_hist_first": "the history table is read before the manifest; the row moves in between",
    "fold_stale_drop": "the dropping publish does not expect the manifest version it read",
    # optimize rolled forward
    "opt_any_chain": "the newest maintenance version is the candidate, whatever lies below it",
    "opt_no_pins": "optimize is rolled forward without comparing the pins",
    "opt_any_file": "a candidate may name files that neither the pin nor this sidecar names",
    # versions put right above their base
    "strict_put_over": "a strict commit puts its version though the number is taken",
    # small files merged within a write
    "merge_kept": "a retry keeps the merged file of its first attempt, and what that removed",
    "merge_unread": "a retry puts the merged file of its first attempt in place of all files now",
    "merge_indexed": "a write merges files that an index knows",
    # maintenance of several tables, each by itself
    "maintenance_blind_pins": "maintenance publishes a table whose pin has moved meanwhile",
    "maintenance_inexact": "maintenance publishes a table whose commit is not right above the pin",
    # writers that take others along
    "combine_unarmed": "a member is taken along before its data files are written",
    "combine_stale": "a member is taken along though it was validated on other pins",
    "combine_conflicting": "a member is taken along though its rows exclude those of another",
    "combine_inexact": "a member's version is published that is not right above the one before it",
    "combine_undecided": "a publish does not check that the members have no rows yet",
    "combine_hole": "a publish does not compare what the versions of its members are based on",
    "combine_no_read_set": "a publish does not expect the pins of what its members have read",
    "combine_no_row": "a publish moves the pin over the rows of a member without a row for it",
    "combine_read_before": "what a member has read is compared without what is published before it",
    "combine_kept_report": "the sidecar of a retry tells of the versions of the first attempt",
}
"""Every guard, by the mutant that removes it. Each one must be caught."""

NOT_A_GUARD: Final[Mutant] = "opt_gap"
"""Optimize rolled forward over a gap in the versions: harmless while cleanup stays below pins."""
