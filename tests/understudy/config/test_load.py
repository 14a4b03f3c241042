"""The configuration: what each source may say, which one wins, and that every fault is one line that names
it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.config.load import load
from understudy.config.settings import ConfigError, Settings
from understudy.config.types import parse_duration, parse_size
from understudy.shared.addresses import HostPort, parse_address, parse_addresses

HASH = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("UNDERSTUDY_"):
            monkeypatch.delenv(name)


def fault(path: Path | None = None, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_default_is_a_durable_standalone_broker_on_loopback() -> None:
    settings = load(None)
    assert settings.broker.listen == (HostPort("127.0.0.1", 5672),)
    assert settings.broker.data_dir == Path("understudy-data")
    assert settings.broker.durable
    assert settings.broker.http is None
    assert settings.ha.brokers == ()
    assert settings.ha.replicate is None
    assert settings.ledger_dir == Path("understudy-data/ledger")
    durations = settings.ha
    assert (durations.ack_timeout, durations.lease, durations.backup_timeout) == (2, 3, 5)
    assert (durations.dequeue_lag, durations.reconnect_grace) == (0.01, 10)


def test_every_key_of_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        f"""
        [broker]
        name = "left"
        listen = ["127.0.0.1:5001", "[::1]:5001"]
        http = "127.0.0.1:0"
        [ha]
        brokers = "127.0.0.1:5001,127.0.0.1:5002"
        replicate = "configuration"
        ack_timeout = "750ms"
        password = "secret"
        [auth.users.joe]
        password = "{HASH}"
        tags = ["administrator"]
        """
    )
    settings = load(path)
    assert settings.broker.name == "left"
    assert settings.broker.listen == (HostPort("127.0.0.1", 5001), HostPort("::1", 5001))
    assert settings.broker.http == HostPort("127.0.0.1", 0)
    assert settings.ha.brokers == ((HostPort("127.0.0.1", 5001),), (HostPort("127.0.0.1", 5002),))
    assert settings.ha.ack_timeout == 0.75
    assert settings.auth.users is not None
    assert settings.auth.users["joe"].tags == ("administrator",)


def test_the_environment_beats_the_file_and_set_beats_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node.toml"
    path.write_text('[ha]\nlease = "1s"\nack_timeout = "1s"\nbackup_timeout = "1s"\n')
    monkeypatch.setenv("UNDERSTUDY_HA__LEASE", "2s")
    monkeypatch.setenv("UNDERSTUDY_HA__ACK_TIMEOUT", "2s")
    monkeypatch.setenv("UNDERSTUDY_USER", "not a setting")
    settings = load(path, ["ha.lease=3s"], {"broker.name": "x", "broker.http": None})
    assert (settings.ha.lease, settings.ha.ack_timeout, settings.ha.backup_timeout) == (3, 2, 1)
    assert settings.broker.name == "x"


def test_set_beats_a_flag_of_its_own_command() -> None:
    assert load(None, ["broker.name=b"], {"broker.name": "a"}).broker.name == "b"


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("ha.lease=5", "ha.lease"),
        ("ha.lease=0s", "ha.lease"),
        ("ha.lease=soon", "'soon'"),
        ("ha.brokers=here", "ha.brokers"),
        ("ha.brokers=[::1]:5672,127.0.0.1:5672,[::1]:5672", "ha.brokers (--set): has [::1]:5672 twice"),
        ("ha.replicate=some", "ha.replicate"),
        ("ha.on_backup_loss=panic", "ha.on_backup_loss"),
        ("ha.min_backups=-1", "ha.min_backups"),
        ("ha.brokers=h:1|h:1,i:1", "ha.brokers (--set): has h:1 twice; name each address once"),
        ("ha.brokers=h:1|g:1,i:1|g:1", "ha.brokers (--set): has g:1 twice; name each address once"),
        ("ha.brokers=h:1|,i:1", "ha.brokers (--set): 'h:1|' has an empty part"),
        ("ha.brokers=h:1| |g:1,i:1", "ha.brokers (--set): 'h:1| |g:1' has an empty part"),
        ("ha.brokers=h:1|here,i:1", "ha.brokers (--set): 'here' is not an address"),
        ("ha.brokers=amqp://u:s3@cret@h:1", "ha.brokers (--set): 'amqp://***@h:1' is not an address"),
        ("broker.listen=u:s3cret@h:1", "broker.listen (--set): '***@h:1' is not an address"),
        ("broker.listen=s3cret@h:1", "broker.listen (--set): '***@h:1' is not an address"),
        ("ha.brokers=a:1|b:1|c:1|d:1|e:1", "ha.brokers (--set): 'a:1|b:1|c:1|d:1|e:1' has 5 addresses"),
        ("ha.min_backups=1", "ha.min_backups (--set): 1 needs more brokers than the 0 of ha.brokers"),
        (
            "ha.on_backup_loss=block",
            "ha.on_backup_loss (--set): 'block' needs two brokers to confirm anything, and ha.brokers has 0",
        ),
        ("ha.lease=" + "9" * 400 + "s", "ha.lease (--set): '999"),
        ("ledger.rotate_age=101000d", "is a duration of more than 100 years"),
        ("ledger.dir=", "ledger.dir (--set): needs the path of a directory"),
        ("broker.heartbeat=0.5s", "broker.heartbeat (--set): must be whole seconds"),
        ("broker.name=" + "x" * 101, "broker.name (--set): 'xxx"),
        ("broker.name=a\nb", "broker.name (--set): 'a\\nb' is not a broker name"),
        ("broker.name=_a", "broker.name (--set): '_a' is not a broker name: the files of its ledger"),
        ("broker.name=.a", "broker.name (--set): '.a' is not a broker name: the files of its ledger"),
        ("ha.authority=oracle", "ha.authority"),
        ("ha.password=", "ha.password"),
        ("ha.username=", "ha.username"),
        ("broker.heartbeat=70000s", "broker.heartbeat"),
        ("broker.max_message_size=0", "broker.max_message_size"),
        ("broker.max_message_size=129MiB", "broker.max_message_size"),
        ("auth.default_user=shop", "auth.default_password"),
        ("auth.default_password=word", "auth.default_user"),
        ("auth.default_password=", "auth.default_password"),
        ("broker.listen=a..b:5672", "a..b"),
        ("ledger.rotate=0", "ledger.rotate"),
        ("broker.listen=localhost", "'localhost'"),
        ("broker.listen=127.0.0.1:99999", "broker.listen"),
        ("broker.listen=", "broker.listen"),
        ("broker.colour=red", "broker.colour"),
        ("kitchen.sink=1", "kitchen"),
        ("broker", "--set broker"),
        ("nonsense", "nonsense"),
        ("auth.users.joe.password=secret", "auth.users.joe.password"),
        ("auth.users.joe.tags=administrator", "auth.users.joe.password"),
        ("auth.users.joe.password=$argon2id$cut", "auth.users.joe.password"),
        ("auth.users.joe.password=$argon2id$v=19$m=19456,t=2,p=1$a$b", "auth.users.joe.password"),
    ],
)
def test_a_wrong_override_is_one_line_that_names_it(override: str, names: str) -> None:
    assert names in fault(None, override)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ha = 3", "ha"),
        ("[auth]\nusers = ['joe']", "auth.users"),
        ("[auth.users]\njoe = 'x'", "auth.users.joe"),
    ],
)
def test_a_value_in_the_place_of_a_section_is_told_in_words_of_toml(
    tmp_path: Path, text: str, name: str
) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)
    assert fault(path) == f"{name} ({path}): must be a section, [{name}], not a value"


def test_a_password_never_shows_in_a_fault() -> None:
    assert "secret" not in fault(None, "auth.users.joe.password=secret")
    assert "hunter2" not in fault(None, "ha.password.hunter2=1", "ha.lease=1s")


def test_a_password_of_the_wrong_type_or_place_never_shows_in_a_fault(tmp_path: Path) -> None:
    for text in (
        "[ha]\npassword = 31337\n",
        "[auth.users]\njoe = '31337'\n",
        "[auth.users.joe]\npassword = 31337\n",
    ):
        wrong = tmp_path / "wrong.toml"
        wrong.write_text(text)
        assert "31337" not in fault(wrong)


def test_a_wrong_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert str(missing) in fault(missing)
    broken = tmp_path / "broken.toml"
    broken.write_text("[broker\nname=")
    assert str(broken) in fault(broken)
    deep = tmp_path / "deep.toml"
    deep.write_text("a = " + "[" * 100_000)
    assert fault(deep) == f"{deep} is not valid TOML: nested too deep"
    long = tmp_path / "long.toml"
    long.write_text(f"[ha]\nmin_backups = {'9' * 5000}\n")
    assert fault(long) == f"{long}: a number has too many digits"
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert str(binary) in fault(binary)
    directory = fault(tmp_path)
    assert str(tmp_path) in directory
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[ha]\nlease = 5\n")
    assert str(wrong) in fault(wrong)
    assert "ha.lease" in fault(wrong)


def test_a_value_where_a_section_belongs_is_not_passed_over(tmp_path: Path) -> None:
    flat = tmp_path / "flat.toml"
    flat.write_text('broker = "b"\n')
    assert "broker (" in fault(flat, "broker.name=a")


@pytest.mark.parametrize("text", ["h:1,i:2", '["h:1", "i:2"]'])
def test_a_list_in_the_environment_is_written_as_in_set_or_as_json(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("UNDERSTUDY_HA__BROKERS", text)
    assert [str(address) for address in load(None).ha.routes] == ["h:1", "i:2"]


def test_a_wrong_list_in_the_environment_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_HA__BROKERS", "h:1,nonsense")
    with pytest.raises(ConfigError, match=r"ha\.brokers \(environment\)"):
        load(None)


def test_a_wrong_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_HA__LEAS", "1s")
    assert "ha.leas" in fault()
    monkeypatch.delenv("UNDERSTUDY_HA__LEAS")
    monkeypatch.setenv("UNDERSTUDY_HOUSE__LEASE", "1s")
    assert "UNDERSTUDY_HOUSE__LEASE" in fault()


def test_durations_addresses_and_sizes() -> None:
    assert [parse_duration(text) for text in ("10ms", "2s", "1.5m", "1h", "2d")] == [
        0.01, 2, 90, 3600, 172800,
    ]  # fmt: skip
    assert parse_address("[::1]:5672") == HostPort("::1", 5672)
    assert str(HostPort("::1", 5672)) == "[::1]:5672"
    assert parse_addresses("a:1, b:2") == (HostPort("a", 1), HostPort("b", 2))
    assert parse_addresses("") == ()
    assert [parse_size(value) for value in (10, "10", "1k", "2MiB")] == [10, 10, 1024, 2 * 2**20]
    for wrong in ("", "1", "-1s", "1 fortnight", None, 3):
        with pytest.raises(ValueError, match="duration"):
            parse_duration(wrong)
    for wrong in (
        "",
        ":1",
        "a",
        "a:",
        "a:b",
        "a:65536",
        "::1:5",
        "a..b:1",
        "x" * 64 + ":1",
        "a\0:1",
        None,
        3,
    ):
        with pytest.raises(ValueError, match="address"):
            parse_address(wrong)


def test_settings_do_not_change_after_they_are_read() -> None:
    settings: Settings = load(None)
    with pytest.raises(Exception, match="frozen"):
        settings.broker.name = "other"


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (
            (f"auth.users.joe.password={HASH}", "auth.users.joe.tags=ha"),
            "auth.users.joe.tags (--set): 'ha' is",
        ),
        ((f"auth.users.joe.password={HASH}", "ha.username=joe"), "ha.username (--set): 'joe' is"),
        (("ha.username=guest",), "ha.username (--set): 'guest' is"),
        (
            ("broker.listen=h:1,i:1,h:1",),
            "broker.listen (--set): h:1 is already in broker.listen",
        ),
        (
            ("broker.listen=h:1", "broker.tls_listen=h:1"),
            "broker.tls_listen (--set): h:1 is already in broker.listen",
        ),
        (("broker.listen=h:1", "ha.listen=h:1"), "ha.listen (--set): h:1 is already a listener for clients"),
        (
            ("ha.brokers=h:1,i:1", "ha.min_backups=2"),
            "ha.min_backups (--set): 2 needs more brokers than the 2",
        ),
        (("ha.brokers=h:1,i:1", "ha.listen=h:1"), "ha.public_brokers: is needed with ha.listen"),
        (("ha.brokers=h:1,i:1", "ha.public_brokers=h:2"), "ha.public_brokers (--set): needs one address for"),
        (("ha.brokers=h:1", "ha.public_brokers=https://h:2"), "ha.public_brokers (--set): 'https://h:2' is"),
    ],
)
def test_what_is_wrong_together_names_the_key_to_change(overrides: tuple[str, ...], names: str) -> None:
    assert fault(None, *overrides).startswith(names)


def test_addresses_for_clients_may_say_that_tls_is_spoken() -> None:
    settings = load(None, ["ha.brokers=h:1,i:1,j:1", "ha.public_brokers=h:2,amqps://[::1]:3,amqp://j:4/"])
    assert [str(address) for address in settings.ha.public_brokers] == ["h:2", "amqps://[::1]:3", "j:4"]


@pytest.mark.parametrize("given", ["file", "set", "environment"])
def test_a_node_may_have_several_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    path, told = tmp_path / "understudy.toml", "10.0.0.1:5672|[fd00::1]:5672,10.0.0.2:5672 | [fd00::2]:5672"
    path.write_text(
        '[ha]\nbrokers = ["10.0.0.1:5672|[fd00::1]:5672", "10.0.0.2:5672|[fd00::2]:5672"]\n'
        if given == "file"
        else ""
    )
    if given == "environment":
        monkeypatch.setenv("UNDERSTUDY_HA__BROKERS", told)
    ha = load(path, [f"ha.brokers={told}"] if given == "set" else []).ha
    assert [[str(address) for address in routes] for routes in ha.brokers] == [
        ["10.0.0.1:5672", "[fd00::1]:5672"],
        ["10.0.0.2:5672", "[fd00::2]:5672"],
    ]
    assert len(ha.routes) == 4
    settings = load(path, [f"ha.brokers={told}", "ha.authority=pair", "ha.role=primary"])
    assert settings.model_dump()["ha"]["brokers"] == told.replace(" ", ""), "members are counted, not routes"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([], "needs either password or password_file"),
        (["password=p", "password_file=/dev/null"], "needs either password or password_file"),
        (["password=p", "ca=/etc/ssl/ca.pem"], "has a ca, which needs tls = true"),
        (["password=p", "ca=/etc/ssl/ca.pem", "tls=false"], "has a ca, which needs tls = true"),
    ],
)
def test_a_login_of_federation_that_makes_no_sense_is_refused(settings: list[str], said: str) -> None:
    overrides = [f"federation.logins.net.{each}" for each in ("username=u", *settings)]
    with pytest.raises(ConfigError) as failed:
        load(None, overrides)
    assert "federation.logins.net (--set): " in str(failed.value) and said in str(failed.value)
