"""What is no function of weights is refused before anything runs, in one sentence with the cure."""

import sys

import numpy as np
import pytest

import thalweg as tw


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(tw.InputError, match=r"needs PyTorch.*pip install thalweg\[torch\]"):
        tw.torch.ModuleObjective(None, print, ())
    with pytest.raises(tw.InputError, match="needs PyTorch"):
        tw.torch.load_(None, {})


torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "thalweg[torch]"')
nn, F = torch.nn, torch.nn.functional
X, Y = torch.linspace(-1, 1, 18).reshape(6, 3), torch.linspace(0, 1, 12).reshape(6, 2)


def make(*parts, loss=F.mse_loss, data=(X, Y), **how):
    torch.manual_seed(0)
    return tw.torch.ModuleObjective(nn.Sequential(nn.Linear(3, 2), *parts), loss, data, **how)


def refused(sentence):
    return pytest.raises(tw.InputError, match=sentence)


def test_training_mode():
    with refused(r"evaluation mode, but its Dropout `1` is random.*call module.eval\(\) first"):
        make(nn.Dropout())
    with refused(r"evaluation mode, but its BatchNorm1d `1` keeps statistics.*module.eval\(\)"):
        make(nn.BatchNorm1d(2))
    make(nn.Dropout().eval(), nn.BatchNorm1d(2).eval())
    make(nn.Dropout(0.0))  # which is not random


def test_random_and_stateful_losses():
    def noisy(outputs, targets):
        return F.mse_loss(outputs + torch.randn_like(outputs), targets)

    calls = []

    def counting(outputs, targets):
        calls.append(1)
        return F.mse_loss(outputs, targets) * len(calls)

    for loss in (noisy, counting):
        with refused(r"must be the same number each time .* turn off random numbers and state"):
            make(loss=loss)

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x

    with refused("change nothing, got buffers that change when it is called"):
        make(Counter())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    module = nn.Linear(3, 2).to(dtype)
    with refused(r"must be float32 or float64, got torch.b?float16 of `weight`.*module.float\(\)"):
        tw.torch.ModuleObjective(module, F.mse_loss, (X.to(dtype), Y.to(dtype)))


@pytest.mark.parametrize("kind", ["lazy", "meta"])
def test_parameters_without_values(kind):
    module = nn.LazyLinear(1) if kind == "lazy" else nn.Linear(3, 1, device="meta")
    with refused("must have values, but `weight` has none yet; call a lazy module once"):
        tw.torch.ModuleObjective(module, F.mse_loss, (X, Y[:, :1]))


def test_nothing_to_move():
    with refused(r"at least one parameter that needs a gradient.*module.requires_grad_\(True\)"):
        tw.torch.ModuleObjective(nn.Linear(3, 2).requires_grad_(False), F.mse_loss, (X, Y))
    with refused("must depend on a parameter that needs a gradient"):
        make(loss=lambda outputs, targets: torch.mean(targets))


def test_a_loss_that_is_not_one_number():
    with refused(r"must return one number, got shape \(6, 2\); take the mean"):
        make(loss=nn.MSELoss(reduction="none"))
    with refused("must return one number, got 0.5"):
        make(loss=lambda outputs, targets: 0.5)


def test_a_loss_that_is_neither_a_mean_nor_a_sum():
    def worst(outputs, targets):
        return torch.max((outputs - targets) ** 2)

    make(loss=worst)
    with refused("must be a mean over samples, or a sum, where `data` come in several batches"):
        make(loss=worst, batch_size=3)


def test_data_that_cannot_be_gone_through_again():
    batches = ((X, Y) for _ in range(1))
    with refused("a generator is exhausted after the first; give a list of batches"):
        make(data=batches)
    list(batches)
    with refused("a generator is exhausted after the first"):
        make(data=batches)

    class Once:
        def __init__(self):
            self.batches = iter([(X, Y), (X, Y)])

        def __iter__(self):
            return (batch for batch in self.batches)

    with refused("got 12 samples and then 0; give a list of batches, a Dataset or a DataLoader"):
        make(data=Once())


def test_data_that_are_none():
    with refused("must hold at least one sample in every batch, got 0 batches"):
        make(data=[])
    with refused("must hold at least one sample in every batch"):
        make(data=(X[:0], Y[:0]))
    with refused(r"one row per sample in inputs and targets, got shapes \(6, 3\) and \(5, 2\)"):
        make(data=(X, Y[:5]))
    with refused(r"must be a pair of tensors .*, got 3"):
        make(data=3)
    with refused(r"Each batch of `data` must be a pair \(inputs, targets\), got"):
        make(data=[X, X, Y])
    with refused("`batch_size` must be left out where `data` are batches already"):
        make(data=[(X, Y)], batch_size=2)


def test_nan_at_the_start():
    with refused(r"must be finite at the module's present weights, got nan"):
        make(data=(X, Y * torch.nan))
    objective = make()
    with refused("must be finite where it starts, got inf; did the run"):
        tw.descend(
            objective, {"0.weight": np.full((2, 3), 1e30), "0.bias": np.ones(2)},
            learning_rate=0.1, steps=1,
        )  # fmt: skip


def test_data_of_another_type():
    with refused("torch says: .*; the parameters are torch.float32, the data torch.float64"):
        make(data=(X.double(), Y.double()))
    with refused("`module` and `loss_fn` must take the batches of `data`, but torch says"):
        make(data=(X[:, :2], Y))


def test_no_second_derivative():
    """Forward over reverse where there is none backwards; a sentence where there is neither."""

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, slope):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * slope

    class Cubed(nn.Module):
        def forward(self, x):
            return Once.apply(x)

    objective = make(Cubed())
    tw.descend(objective, objective.start, learning_rate=0.1, steps=1)
    with refused("The Hessian needs second derivatives, but torch has none of this `module`"):
        tw.sharpness(objective, objective.start)


def test_attention_is_differentiated_twice_whatever_its_kernel():
    """Oracle: finite differences of gradients; torch's fused kernel has no second derivative."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation="gelu").eval().double()
    data = (torch.randn(3, 5, 4).double(), torch.randn(3, 5, 4).double())
    objective = tw.torch.ModuleObjective(layer, F.mse_loss, data)
    start = objective.start
    direction = {name: np.cos(array) for name, array in start.items()}
    product = objective.hvp(start, direction)
    ahead, behind = (
        objective.gradient({name: start[name] + step * direction[name] for name in start})
        for step in (1e-5, -1e-5)
    )
    for name, found in product.items():  # the differences err by 1e-10, relative to 1
        np.testing.assert_allclose(found, (ahead[name] - behind[name]) / 2e-5, atol=1e-7)


def test_weights_that_are_not_the_modules():
    module = nn.Linear(3, 2)
    with refused(r"names of the module's parameters that need a gradient, bias, weight, got \['b'"):
        tw.torch.load_(module, {"b": np.ones(2)})
    with refused(
        r"`weights\['weight'\]` must have shape \(2, 3\), got \(5, 2, 3\); take one point"
    ):
        tw.torch.load_(module, {"weight": np.ones((5, 2, 3)), "bias": np.ones(2)})
    objective = tw.torch.ModuleObjective(module, F.mse_loss, (X, Y))
    with refused("`weights` must have the structure of the objective's"):
        objective.gradient({"weight": np.ones((2, 3))})
    with refused("`module` must be a torch.nn.Module, got 3"):
        tw.torch.ModuleObjective(3, F.mse_loss, (X, Y))


def test_tensors_given_to_a_function_of_jax():
    """As data they are taken; as weights they would be cut off from the module that they are of."""

    def loss(params, batch):
        return ((batch[0] @ params - batch[1]) ** 2).mean()

    params = np.ones((3, 2))
    taken = tw.FunctionObjective(loss, (X.double(), Y.double()))
    plain = tw.FunctionObjective(loss, (X.double().numpy(), Y.double().numpy()))
    assert float(taken(params)) == float(plain(params))
    with refused("must be an array of JAX or NumPy, got a Tensor of PyTorch; tensor.detach"):
        tw.descend(taken, torch.ones(3, 2), learning_rate=0.1, steps=1)
