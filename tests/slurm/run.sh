#!/usr/bin/env bash
# Starts a real SLURM on this machine and does with it what check.py says, or runs another command on it:
#
#   bash tests/slurm/run.sh
#   bash tests/slurm/run.sh bash run_all.sh demo --slurm tests/slurm/site.yaml
#
# Needs root on Debian or Ubuntu; installs slurm-wlm and munge where they are missing. The daemons have their
# files, sockets and ports for themselves and are stopped at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source setup_env.sh
install_for_tests

if ! command -v slurmctld slurmd munged >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends slurm-wlm munge >/dev/null
    service munge stop >/dev/null 2>&1 || true
fi

folder=$(mktemp -d /tmp/pvera-slurm-XXXXXX)
chmod 755 "$folder" # munge refuses a socket that others cannot reach
stop() {
    if [ -f "$folder/slurmctld.pid" ]; then
        scancel --partition=check && timeout 60 bash -c 'while [ -n "$(squeue --noheader)" ]; do sleep 1; done'
    fi
    for daemon in slurmd slurmctld munged; do
        if pid=$(cat "$folder/$daemon.pid" 2>/dev/null); then
            kill "$pid" && tail --pid="$pid" -f /dev/null
        fi
    done
    rm -rf "$folder"
}
trap stop EXIT

mkdir "$folder/state" "$folder/spool"
(umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --seed-file="$folder/munge.seed" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munged.log"

host=$(hostname -s)
export SLURM_CONF=$folder/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
KillWait=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MaxArraySize=2
MinJobAge=3600
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=check Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
slurmctld
slurmd
timeout 120 bash -c 'until [ "$(sinfo --noheader --format=%T)" = idle ]; do sleep 0.5; done'
sinfo --version

if [ $# -gt 0 ]; then
    "$@"
    exit
fi
python experiments/make_suite.py --root "$folder/data" --task digits vessels 2>/dev/null
PYTHONPATH=tests/helpers python -u tests/slurm/check.py "$folder"
