package main

import (
	"log/slog"
	"os"

	"ckptfs/fusefs"
)

// openFS opens the state and gives the filesystem that the daemon serves.
func openFS(cfg *daemonConfig, log *slog.Logger) (filesystem, error) {
	return fusefs.New(fusefs.Config{
		StateDir:         cfg.StateDir,
		RAMDir:           cfg.RAMDir,
		Mountpoint:       cfg.Mountpoint,
		L1Bytes:          cfg.L1Bytes,
		MaxGenerations:   cfg.MaxGenerations,
		MaxStaging:       cfg.MaxStaging,
		MaxHandles:       cfg.MaxHandles,
		StagingTimeout:   cfg.StagingTimeout,
		AdmissionTimeout: cfg.AdmissionTimeout,
		Tiers:            cfg.Tiers.config(),
		Passthrough:      cfg.Passthrough != passthroughOff,
		FreshMount:       cfg.FreshMount,
		FuseFD:           daemonFuseFD,
		PID:              os.Getpid(),
		KeeperPID:        cfg.Keeper.PID,
		Restarts:         cfg.Keeper.Restarts,
		LastDeath:        cfg.Keeper.LastDeath,
		LastDeathAt:      cfg.Keeper.LastDeathAt,
		Upgrade:          cfg.Keeper.UpgradeError,
		Resend:           cfg.Resend,
		Version:          buildVersion(),
		HugePages:        cfg.HugePages,
		Effective:        effectiveConfig{cfg.Mountpoint, cfg.RAMDir, cfg.Flags},
		Logger:           log,
		LogCounts:        logCounts(log),
	})
}
