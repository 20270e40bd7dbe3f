package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// formerDaemonLimit is how long the daemon of a killed keeper may take to be gone.
const formerDaemonLimit = 5 * time.Second

// prepare checks everything first, touching nothing, and then takes hold of the state, the RAM tier and the mount.
func (o *mountOptions) prepare(at string, io streams, log *slog.Logger) (*keeper, error) {
	at, err := filepath.Abs(at)
	if err != nil {
		return nil, withCode(exitMountPoint, err)
	}
	state, err := resolveState(o.State, resolveExisting(at))
	if err != nil {
		return nil, err
	}
	lock, err := lockState(state, false)
	if err != nil {
		return nil, err
	}
	var point mountPoint
	if lock != nil {
		err = awaitFormerDaemon(state) // until then its mount looks alive
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
	return o.newKeeper(state, lock, ram, fuse, image, io, log), nil
}

// awaitFormerDaemon waits until the daemon of a killed keeper is gone; it may still be writing.
func awaitFormerDaemon(state string) error {
	path := filepath.Join(state, daemonLockName)
	former, err := lockFileWithin(path, false, formerDaemonLimit)
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

func (o *mountOptions) newKeeper(state string, lock *fileLock, ram ramTier, fuse *fuseMount, image *binaryImage, io streams, log *slog.Logger) *keeper {
	recovery := recoverRemount
	if fuse.init.canResend() {
		recovery = recoverResend
	}
	return &keeper{
		cfg: daemonConfig{
			Mountpoint: fuse.point, StateDir: state,
			RAMDir: ram.dir, RAMKind: ram.kind, HugePages: ram.hugePages, L1Bytes: int64(o.L1Size),
			MaxGenerations: o.MaxGenerations, MaxStaging: o.MaxStaging,
			StagingTimeout: o.StagingTimeout, AdmissionTimeout: o.AdmissionTimeout,
			Passthrough: o.Passthrough, MaxWrite: maxWriteBytes, Tiers: o.Tiers, Log: o.Log, Flags: o.effective(state),
			Keeper: keeperInfo{PID: os.Getpid(), Version: buildVersion(), Started: time.Now(), Recovery: recovery},
		},
		allow: o.AllowOther, keepRAM: o.KeepRAM, budget: o.ShutdownBudget, watchdog: o.Watchdog,
		log: log, io: io, manager: newServiceManager(os.Getenv),
		lock: lock, ram: ram, fuse: fuse, image: image, limit: newRestartLimit(),
	}
}
