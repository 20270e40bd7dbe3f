package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// formerDaemonLimit is how long the daemon of a killed keeper may take to be gone.
const formerDaemonLimit = 5 * time.Second

// prepare checks everything first, touching nothing, and then takes hold of the state, the RAM tier and the mount.
func (o *mountOptions) prepare(at string, io streams, log *slog.Logger) (*keeper, error) {
	if at == "" {
		return nil, badMountPoint("the mount point is empty; name a directory")
	}
	at, err := filepath.Abs(at)
	if err != nil {
		return nil, withCode(exitMountPoint, err)
	}
	resolved := resolveMountPoint(at)
	state, err := resolveState(o.State, resolved)
	if err != nil {
		return nil, err
	}
	if err := o.Tiers.place(resolved, state); err != nil {
		return nil, withCode(exitState, err)
	}
	lock, err := lockState(state, false)
	if err != nil {
		return nil, err
	}
	var point mountPoint
	if lock != nil {
		err = awaitFormerDaemon(state) // until then its mount looks alive
	}
	if err == nil && o.MakeDir {
		err = makeMountPoint(at)
	}
	if err == nil {
		point, err = checkMountPoint(at)
	}
	if err == nil && lock == nil {
		lock, err = makeState(state) // from here on things are changed
	}
	var k *keeper
	if err == nil {
		k, err = o.takeHold(state, point, lock, io, log)
	}
	if err != nil {
		if lock != nil {
			lock.release()
		}
		return nil, err
	}
	return k, nil
}

// makeState makes the state directory where it is missing, and locks it.
func makeState(state string) (*fileLock, error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, withCode(exitState, fmt.Errorf("the state directory cannot be made: %w", err))
	}
	return lockState(state, true)
}

// takeHold does what is left of mounting once the state is locked. What it made it takes back if it fails.
func (o *mountOptions) takeHold(state string, point mountPoint, lock *fileLock, io streams, log *slog.Logger) (*keeper, error) {
	if err := lock.describe(fmt.Sprintf("pid %d, mounted on %s", os.Getpid(), point.path)); err != nil {
		return nil, withCode(exitState, fmt.Errorf("the state directory %s cannot be written: %w", state, err))
	}
	image, err := ownImage()
	if err != nil {
		return nil, err
	}
	if point.dead {
		log.Info("clearing a dead mount", "mountpoint", point.path)
		if err := point.clearDead(); err != nil {
			return nil, err
		}
	}
	metrics, err := o.listen(log)
	if err != nil {
		return nil, err
	}
	ram, err := openRAMTier(state, o.RAMTier, int64(o.L1Size), log)
	if err != nil {
		return nil, err
	}
	if ram.adopted {
		log.Info("the RAM tier of an earlier run is taken over", "dir", ram.dir)
	}
	fuse, err := mountFUSE(point.path, o.AllowOther, log)
	if err != nil {
		if !ram.adopted {
			err = errors.Join(err, ram.release())
		}
		return nil, err
	}
	if err := lock.describe(mountRecord(fuse)); err != nil {
		log.Warn("the mount could not be recorded in the state directory", "err", err)
	}
	k := o.newKeeper(state, lock, ram, fuse, image, io, log)
	k.metrics, k.cfg.MetricsAddr = metrics, o.MetricsAddr
	return k, nil
}

// listen listens at --metrics-addr, if there is one, and makes it the address that came of it.
func (o *mountOptions) listen(log *slog.Logger) (*os.File, error) {
	if o.MetricsAddr == "" {
		return nil, nil
	}
	address, err := metricsAddress(o.MetricsAddr)
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	socket, address, err := listenMetrics(address)
	if err != nil {
		return nil, err
	}
	o.MetricsAddr = address
	log.Info("metrics are served", "url", "http://"+address+"/metrics")
	return socket, nil
}

// awaitFormerDaemon waits until the daemon of a killed keeper is gone; it may still be writing. One that was killed
// while it waited in the kernel for a call that only it would have answered goes when the connection is ended, which is
// of no use to anybody any more.
func awaitFormerDaemon(state string) error {
	path := filepath.Join(state, daemonLockName)
	former, err := lockFile(path, false)
	if errors.Is(err, errLocked) {
		abortRecordedMount(lockHolder(filepath.Join(state, keeperLockName)))
		former, err = lockFileWithin(path, false, formerDaemonLimit)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, errLocked):
		return withCode(exitInUse, fmt.Errorf("a former daemon (%s) still uses the state directory %s and does not end; kill it", lockHolder(path), state))
	case err != nil:
		return withCode(exitState, err)
	}
	former.release()
	return nil
}

// mountRecord is what a keeper's lock file says of it.
func mountRecord(m *fuseMount) string {
	return fmt.Sprintf("pid %d, mounted on %s (device %s)", os.Getpid(), m.point, m.device)
}

// abortRecordedMount ends the connection of the mount that a keeper, now dead, has recorded. While its daemon is there
// the mount is too, so the device of a mount at this place is not another's.
func abortRecordedMount(record string) {
	_, rest, _ := strings.Cut(record, ", mounted on ")
	at := strings.LastIndex(rest, " (device ")
	table, err := mountTable()
	if at < 0 || err != nil {
		return
	}
	point, device := rest[:at], strings.TrimSuffix(rest[at+len(" (device "):], ")")
	for _, e := range mountsAt(table, point) {
		if e.device != device || !e.isFUSE() {
			continue
		}
		if c, err := openConnectionControl(device); err == nil {
			c.abort()
			c.close()
		}
	}
}

func (o *mountOptions) newKeeper(state string, lock *fileLock, ram ramTier, fuse *fuseMount, image *binaryImage, io streams, log *slog.Logger) *keeper {
	recovery := recoverRemount
	if fuse.init.canResend() {
		recovery = recoverResend
	}
	return &keeper{
		cfg: daemonConfig{
			Mountpoint: fuse.point, StateDir: state,
			RAMDir: ram.dir, RAMKind: ram.kind, HugePages: ram.hugePages, L1Bytes: int64(o.L1Size),
			MaxGenerations: o.MaxGenerations, MaxStaging: o.MaxStaging, MaxHandles: o.MaxHandles,
			StagingTimeout: o.StagingTimeout, AdmissionTimeout: o.AdmissionTimeout,
			Passthrough: o.Passthrough, MaxWrite: maxWriteBytes, ShutdownBudget: o.ShutdownBudget, Tiers: o.Tiers, Log: o.Log, Flags: o.effective(state),
			Keeper: keeperInfo{PID: os.Getpid(), Version: buildVersion(), Started: time.Now(), Recovery: recovery},
		},
		allow: o.AllowOther, keepRAM: o.KeepRAM, budget: o.ShutdownBudget, watchdog: o.Watchdog,
		log: log, io: io, manager: newServiceManager(os.Getenv),
		lock: lock, ram: ram, fuse: fuse, image: image, limit: newRestartLimit(),
	}
}
