"""One module's optimiser: Adam, with a schedule, and a state that can be kept."""

from __future__ import annotations

from collections.abc import Mapping

from common.nets.backend import nn, torch
from common.nets.modules import Encoder
from common.nets.shape import Optimisation

# Below this, Adam over the whole table in one fused pass is cheaper than sorting out the touched rows
# (2·10^6 rows of 8: 45 ms a step against 12 ms; 10^5 rows: 3 ms against 6 ms).
_DENSE_ROWS = 1 << 18


class Learner:
    """Adam on the parameters of some modules; on large embedding tables, SparseAdam on the rows of a
    batch."""

    def __init__(self, module: nn.Module, optimisation: Optimisation) -> None:
        """Start at step 0."""
        self.module = module
        self.steps = 0
        self._optimisation = optimisation
        tables = [one for one in module.modules() if isinstance(one, Encoder)]
        large = [one for one in tables if one.layout.table_rows > _DENSE_ROWS]
        for encoder in large:
            encoder.sparse = True
        embeddings = {id(one.table) for one in tables}
        sparse = {id(one.table) for one in large}
        layers = [one for one in module.parameters() if id(one) not in embeddings]
        # Each party penalises its own layers: ‖W‖² falls into a sum over them.
        self._weights = [one for one in layers if one.ndim > 1]
        dense = [one.table for one in tables if id(one.table) not in sparse]
        rate = optimisation.learning_rate
        groups = [{"params": layers, "weight_decay": optimisation.weight_decay}]
        groups += [{"params": dense, "weight_decay": 0.0}] if dense else []
        self._optimisers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW([group for group in groups if group["params"]], lr=rate, fused=True)
        ]
        if large:
            self._optimisers.append(torch.optim.SparseAdam([one.table for one in large], lr=rate))

    def clear(self) -> None:
        """Forget the gradients of the step before."""
        for optimiser in self._optimisers:
            optimiser.zero_grad(set_to_none=True)

    def apply(self) -> None:
        """Go one step down the gradients that are there, and those of the layers' penalty."""
        if self._optimisation.l2:
            for weight in self._weights:
                if weight.grad is not None:
                    weight.grad.add_(weight.detach(), alpha=self._optimisation.l2)
        rate = self._optimisation.rate(self.steps)
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
        self.steps += 1

    def state(self) -> dict[str, torch.Tensor]:
        """Return weights and moments by name."""
        kept = {f"weights.{name}": tensor for name, tensor in self.module.state_dict().items()}
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        for optimiser in self._optimisers:
            for parameter, moments in optimiser.state.items():
                for key, value in moments.items():
                    kept[f"adam.{key}.{names[id(parameter)]}"] = torch.as_tensor(value)
        kept["steps"] = torch.tensor(self.steps)
        return kept

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take up a state; one with weights alone starts anew from them.

        Raises:
            KeyError, RuntimeError, ValueError: It belongs to another network.
        """
        weights = {
            name.removeprefix("weights."): one for name, one in state.items() if name.startswith("weights.")
        }
        self.module.load_state_dict(weights)
        self.steps = int(state["steps"]) if "steps" in state else 0
        for optimiser in self._optimisers:
            sparse = isinstance(optimiser, torch.optim.SparseAdam)
            for parameter in (one for group in optimiser.param_groups for one in group["params"]):
                name = next(name for name, one in self.module.named_parameters() if one is parameter)
                if f"adam.exp_avg.{name}" not in state:
                    continue
                moments = {
                    key: state[f"adam.{key}.{name}"].clone() for key in ("exp_avg", "exp_avg_sq", "step")
                }
                if moments["exp_avg"].shape != parameter.shape:
                    raise ValueError("moments of another network")
                optimiser.state[parameter] = {
                    **{key: moments[key].to(parameter.device) for key in ("exp_avg", "exp_avg_sq")},
                    "step": int(moments["step"]) if sparse else moments["step"].to(parameter.device),
                }
