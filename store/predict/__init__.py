"""What the next start of a broker will do to a store, without doing it.

from rmqctl.store.predict import predict
prediction = predict(files, "5.3.3")
"""

from __future__ import annotations

from rmqctl.store.predict.prediction import Prediction, predict
from rmqctl.store.predict.rules import BROKERS

__all__ = ["BROKERS", "Prediction", "predict"]
