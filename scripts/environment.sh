# Makes the checkout's .venv what pyproject.toml asks for. Sourced by the scripts beside it, with $root set.
# shellcheck shell=sh

venv=$root/.venv
stamp=$venv/edgellm-stamp

note() { printf 'edgellm: %s\n' "$*" >&2; }
fail() { printf 'edgellm: %s\n' "$*" >&2; exit 1; }

# prepare EXTRA: install edgellm in editable mode, with an extra of pyproject.toml. Costs nothing when it is done already.
prepare() {
    extra=$1
    wanted="$(cksum <"$root/pyproject.toml") $root"       # a moved checkout needs a new .venv: its scripts hold paths
    is_ready && return
    mkdir -p "$venv"
    lock
    trap 'rm -rf "$venv/lock"' EXIT
    trap 'exit 130' INT TERM HUP
    is_ready || set_up
    rm -rf "$venv/lock"
    trap - EXIT INT TERM HUP
}

# The stamp is written last, so an interrupted set-up has none and is done again.
is_ready() {
    [ -x "$venv/bin/python" ] && [ -x "$venv/bin/edgellm" ] && [ -r "$stamp" ] || return 1
    { IFS= read -r have && IFS= read -r have_extra; } <"$stamp" || return 1
    [ "$have" = "$wanted" ] && case $have_extra in "$extra" | dev) ;; *) false ;; esac     # dev has all that serve has
}

# One set-up at a time; the lock of a process that no longer lives is taken over.
lock() {
    told=
    while ! mkdir "$venv/lock" 2>/dev/null; do
        [ -d "$venv" ] && [ -w "$venv" ] || fail "cannot write to $venv"
        holder=$(cat "$venv/lock/pid" 2>/dev/null) || { sleep 1; holder=$(cat "$venv/lock/pid" 2>/dev/null) || holder=; }
        if [ -n "$holder" ] && kill -0 "$holder" 2>/dev/null; then
            [ -n "$told" ] || note "waiting for another start that is installing (process $holder)"
            told=yes
            sleep 1
        else
            rm -rf "$venv/lock"
        fi
    done
    echo $$ >"$venv/lock/pid"
}

set_up() {
    rm -f "$stamp"
    if ! is_sound; then
        find_python
        note "first start: making .venv with $("$python" --version 2>&1)"
        rm -rf "$venv/bin" "$venv/lib" "$venv/lib64" "$venv/include" "$venv/pyvenv.cfg" "$venv/install.log"
        "$python" -m venv "$venv" >&2 || fail "$python -m venv failed: see above"
    fi
    note "installing what pyproject.toml asks for; this takes a minute or two, once"
    install || {
        tail -n 12 "$venv/install.log" >&2
        fail "the installation failed: it needs a package index; the whole log is $venv/install.log; start again to retry"
    }
    printf '%s\n%s\n' "$wanted" "$extra" >"$stamp.new"
    mv "$stamp.new" "$stamp"
    note "ready"
}

# A .venv that works, and in which pip was not killed half way through its copying.
is_sound() {
    [ ! -e "$venv/install.log" ] || [ -e "$venv/install.status" ] || return 1
    "$venv/bin/python" -c 'import pip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null
}

# A Python that edgellm runs on and that can make virtual environments, in $python.
find_python() {
    bare=
    for python in ${EDGELLM_PYTHON:+"$EDGELLM_PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python; do
        "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null || continue
        "$python" -c 'import venv, ensurepip' 2>/dev/null && return
        bare=$python
    done
    [ -z "$bare" ] || fail "$bare lacks the venv module: on Debian, Ubuntu or Raspberry Pi OS: sudo apt install python3-venv"
    fail "Python 3.11 to 3.14 is needed and was not found: install it, or name one with EDGELLM_PYTHON=/path/to/python3"
}

# pip's output goes to a log; a terminal sees one line of it at a time.
install() {
    : >"$venv/install.log"
    rm -f "$venv/install.status"
    {
        cd "$root" && "$venv/bin/python" -m pip install --no-user --no-input --disable-pip-version-check \
            --progress-bar off -e ".[$extra]" 2>&1
        echo $? >"$venv/install.status"
    } </dev/null | while IFS= read -r line; do
        printf '%s\n' "$line"
        case $line in
        Collecting* | *Downloading* | "Building "* | "Installing "* | "Preparing "*)
            [ ! -t 2 ] || printf '\r%-78.78s' "$line" >&2 ;;
        esac
    done >>"$venv/install.log"
    [ ! -t 2 ] || printf '\r%-78s\r' '' >&2
    [ "$(cat "$venv/install.status" 2>/dev/null)" = 0 ]
}
