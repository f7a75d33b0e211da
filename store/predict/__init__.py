"""Simulation of a broker's next start.

from rmqctl.store.predict import predict
prediction = predict(files, "5.3.3")
"""

from __future__ import annotations

from rmqctl.store.predict.predicting import predict
from rmqctl.store.predict.prediction import Prediction
from rmqctl.store.predict.walked import WalkedLog

__all__ = ["Prediction", "WalkedLog", "predict"]
