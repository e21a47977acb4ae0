package a

import (
	"fmt"
	"log"
	"log/slog"
)

func both(l *slog.Logger) error {
	err := fmt.Errorf("x")
	if err != nil {
		l.Error("doing", slog.Any("err", err))
		return fmt.Errorf("doing: %w", err) // want "err is logged and returned"
	}
	log.Println(err)
	return err // want "err is logged and returned"
}

func one(l *slog.Logger) error {
	err := fmt.Errorf("x")
	if err != nil {
		l.Info("retrying", slog.Int("n", 1))
		return err
	}
	l.Error("doing", slog.Any("err", err))
	return nil
}
