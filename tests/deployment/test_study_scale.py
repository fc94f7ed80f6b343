"""How columns are made comparable is set once for a study, for its hub and all its sites."""

from pathlib import Path

import pytest

from fcac.deployment.hub import Hub
from fcac.deployment.settings import FederationSettings
from fcac.deployment.site_setup import site_settings
from fcac.deployment.study import init
from testing.federation_study import make_study

SCHEMA = 'fcac_schema = 1\n[columns]\nage = { kind = "number" }\nincome = { kind = "number" }\n'


@pytest.mark.slow
def test_a_study_sets_the_scale_of_hub_and_sites(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA, "utf-8")
    make_study(tmp_path, ["a", "b"], tmp_path / "schema.toml", scale="robust", false_split_rate=0.02)
    settings = FederationSettings.load(tmp_path / "study")
    assert settings.scale == "robust"
    assert settings.false_split_rate == 0.02
    assert Hub(tmp_path / "state", settings).snapshot().server.readout.settings.false_split_rate == 0.02
    assert Hub(tmp_path / "state", settings).snapshot().server.readout.settings.scale == "robust"
    site = site_settings(tmp_path / "bundles" / "a", tmp_path / "rows.csv", tmp_path / "site")
    assert site.make_condenser().scale == "robust"
    with pytest.raises(ValueError, match="scale must be one of"):
        init(tmp_path / "other", tmp_path / "schema.toml", scale="max")
    with pytest.raises(ValueError, match="false_split_rate must be a share"):
        init(tmp_path / "other", tmp_path / "schema.toml", false_split_rate=2)
    with pytest.raises(ValueError, match='scale: server="cae-fc"'):
        init(tmp_path / "other", tmp_path / "schema.toml", server="cae-fc", scale="robust")
    assert not (tmp_path / "other").exists()
