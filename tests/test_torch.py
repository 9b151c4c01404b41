"""Modules of PyTorch as objectives, against JAX, against torch's own optimiser and dense Hessians.

They are small and in double precision: tolerances are those of some hundred roundings.
"""

import subprocess
import sys
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "thalweg[torch]"')
nn, F = torch.nn, torch.nn.functional
DOUBLE = torch.float64


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


class Tied(nn.Module):
    """One matrix there and back again, the second time transposed inside of a Linear."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
        self.down.weight = self.up.weight

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class Buffered(nn.Module):
    """A layer with a fixed scale in a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("scale", torch.tensor([0.5, 2.0], dtype=DOUBLE))

    def forward(self, x):
        return torch.sin(self.layer(x)) * self.scale


def frozen():
    module = mlp()
    module[0].weight.requires_grad_(False)
    return module


def mlp():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 3)
    )


def normed():
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))


def batch_norm():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    module[1].running_mean, module[1].running_var = normal(4), normal(4) ** 2 + 0.5
    return module.eval()


def encoder():
    layer = nn.TransformerEncoderLayer(2, 2, 2, activation="gelu", batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(6, 2)).eval()


class MaxPooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.out = nn.Conv2d(1, 2, 3), nn.Linear(2, 3)

    def forward(self, x):
        return self.out(F.max_pool2d(F.relu(self.convolution(x)), 2).flatten(1))


LABELS = torch.tensor([0, 2, 1, 1, 0, 2, 2])
SQUARES = (normal(7, 3), normal(7, 2, seed=2))
IMAGES = (normal(7, 1, 4, 4), LABELS)
MODULES = {
    "mlp": (mlp, F.mse_loss, SQUARES),
    "convolutions": (cnn, F.cross_entropy, IMAGES),
    "max pooling": (MaxPooled, F.cross_entropy, IMAGES),
    "layer norm": (normed, F.mse_loss, SQUARES),
    "batch norm": (batch_norm, F.mse_loss, SQUARES),
    "encoder": (encoder, F.mse_loss, (normal(7, 3, 2), normal(7, 2))),
    "tied": (Tied, F.mse_loss, (normal(7, 3), normal(7, 3, seed=2))),
    "buffers": (Buffered, F.mse_loss, SQUARES),
    "frozen": (frozen, F.mse_loss, SQUARES),
}


def made(name):
    """A module, its loss and data, always the same."""
    make, loss, data = MODULES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = make().double()
    return module, loss, data


@pytest.fixture(params=MODULES)
def case(request):
    return made(request.param)


def flat(tree):
    """As JAX flattens a dictionary: by sorted names."""
    return np.concatenate([np.ravel(tree[name]) for name in sorted(tree)])


def dense(module, loss, data):
    """Value, gradient and Hessian by torch.autograd.functional, over one long vector."""
    names = sorted(name for name, each in module.named_parameters() if each.requires_grad)
    parts = [module.get_parameter(name) for name in names]
    cuts = np.cumsum([0] + [part.numel() for part in parts])

    def function(vector):
        weights = {
            name: vector[low:high].reshape(part.shape)
            for name, part, (low, high) in zip(names, parts, pairwise(cuts), strict=True)
        }
        return loss(torch.func.functional_call(module, weights, (data[0],)), data[1])

    point = torch.cat([part.detach().flatten() for part in parts]).requires_grad_()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        value = function(point)
        slope = torch.autograd.grad(value, point)[0]
        matrix = torch.autograd.functional.hessian(function, point.detach())
    return value.item(), slope.numpy(), matrix.numpy()


# --- derivatives ---------------------------------------------------------------------------------


def test_derivatives_and_eigenvalues(case):
    """Oracle: torch's dense Hessian, and a perturbed point."""
    objective = tw.torch.ModuleObjective(*case)
    value, slope, matrix = dense(*case)
    assert float(objective(objective.start)) == pytest.approx(value, rel=1e-13)
    found, gradient = objective.value_and_gradient(objective.start)
    assert float(found) == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(flat(gradient), slope, rtol=1e-12, atol=1e-13 * abs(slope).max())
    direction = jax.tree.map(np.cos, objective.start)
    product = flat(objective.hvp(objective.start, direction))
    expected = matrix @ flat(direction)
    np.testing.assert_allclose(product, expected, atol=1e-12 * abs(expected).max())
    ends, values = tw.extreme_eigenvalues(objective, objective.start), np.linalg.eigvalsh(matrix)
    scale = abs(values).max()
    assert abs(ends.largest[0].value - values[-1]) <= min(ends.largest[0].error, 1e-8 * scale)
    assert abs(ends.smallest[0].value - values[0]) <= min(ends.smallest[0].error, 1e-8 * scale)


def linear(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def jax_mlp(weights, x, y):
    return jnp.mean((linear(weights, "2", jnp.tanh(linear(weights, "0", x))) - y) ** 2)


def jax_normed(weights, x, y):
    hidden = linear(weights, "0", x)
    spread = jnp.sqrt(jnp.var(hidden, axis=1, keepdims=True) + 1e-5)
    hidden = (hidden - jnp.mean(hidden, axis=1, keepdims=True)) / spread
    hidden = hidden * weights["1.weight"] + weights["1.bias"]
    return jnp.mean((linear(weights, "3", jax.nn.gelu(hidden, approximate=False)) - y) ** 2)


def jax_cnn(weights, x, y):
    maps = jax.lax.conv(jnp.asarray(x), weights["0.weight"], (1, 1), "SAME")
    maps = jnp.tanh(maps + weights["0.bias"][:, None, None])
    maps = maps.reshape(-1, 2, 2, 2, 2, 2).mean(axis=(3, 5)).reshape(len(x), -1)
    logs = jax.nn.log_softmax(linear(weights, "4", maps))
    return -jnp.mean(logs[jnp.arange(len(x)), y])


class Twin(tw.objective.AbstractObjective):
    """A function of weights and data in JAX."""

    function: object
    data: tuple

    def __call__(self, weights):
        return self.function(weights, *self.data)


@pytest.mark.parametrize(
    ("name", "function"), [("mlp", jax_mlp), ("layer norm", jax_normed), ("convolutions", jax_cnn)]
)
def test_twins_in_jax(name, function):
    module, loss, data = made(name)
    objective = tw.torch.ModuleObjective(module, loss, data)
    twin = Twin(function, tuple(np.asarray(each) for each in data))
    start = objective.start
    assert float(objective(start)) == pytest.approx(float(twin(start)), rel=1e-12)
    slope = flat(twin.gradient(start))
    found = flat(objective.gradient(start))
    np.testing.assert_allclose(found, slope, rtol=1e-12, atol=1e-13 * abs(slope).max())
    direction = jax.tree.map(np.sin, start)
    expected = flat(twin.hvp(start, direction))
    product = flat(objective.hvp(start, direction))
    np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-13 * abs(expected).max())
    both = [tw.sharpness(each, start).value for each in (objective, twin)]
    assert both[0] == pytest.approx(both[1], rel=1e-8)


# --- trajectories --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "convolutions", "encoder", "tied", "frozen"])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_descent_is_torchs_own(name, momentum):
    module, loss, (x, y) = made(name)
    objective = tw.torch.ModuleObjective(module, loss, (x, y))
    optimiser = tw.optimisers.HeavyBall(momentum) if momentum else tw.optimisers.PLAIN
    run = tw.descend(
        objective, objective.start, learning_rate=0.05, steps=200, record_every=50,
        optimiser=optimiser,
    )  # fmt: skip
    moved = [each for each in module.parameters() if each.requires_grad]
    sgd = torch.optim.SGD(moved, lr=0.05, momentum=momentum)
    for _ in range(200):
        sgd.zero_grad()
        loss(module(x), y).backward()
        sgd.step()
    assert run.loss[-1] == pytest.approx(loss(module(x), y).item(), rel=1e-12)
    for key, array in run.final.items():
        expected = module.get_parameter(key).detach().numpy()
        np.testing.assert_allclose(array, expected, rtol=1e-12, atol=1e-12)


def test_the_flow_and_the_distance_to_it():
    """Oracle: SciPy's integrator on torch's gradients, much tighter."""
    from scipy.integrate import solve_ivp

    objective = tw.torch.ModuleObjective(*made("mlp"))
    run = tw.descend(objective, objective.start, learning_rate=0.2, steps=10)
    flow = tw.flow(objective, objective.start, times=run.times)
    names = sorted(objective.start)
    cuts = np.cumsum([objective.start[name].size for name in names])[:-1]

    def velocity(_, point):
        parts = zip(names, np.split(point, cuts), strict=True)
        weights = {name: part.reshape(objective.shapes[name]) for name, part in parts}
        return -flat(objective.gradient(weights))

    exact = solve_ivp(velocity, (0, 2), flat(objective.start), "DOP853", rtol=1e-12, atol=1e-13)
    error = np.linalg.norm(flat(flow.final) - exact.y[:, -1])
    assert error <= 2 * flow.error[-1]
    assert flow.error[-1] < 1e-7
    gap = np.linalg.norm(flat(run.final) - exact.y[:, -1])
    assert tw.distance(run, flow)[-1] == pytest.approx(gap, rel=1e-6)


def test_the_critical_learning_rate():
    """Oracle: 2 / curvature of least squares; with 100 steps it is found to some percent."""
    module, (x, y) = nn.Linear(3, 1, bias=False).double(), (normal(7, 3), normal(7, 1))
    objective = tw.torch.ModuleObjective(module, F.mse_loss, (x, y))
    minimum = F.mse_loss(x @ torch.linalg.lstsq(x, y).solution, y).item()
    limit = 2 / np.linalg.eigvalsh(2 * x.T @ x / 7)[-1]
    found = tw.critical_learning_rate(
        objective, module, steps=100, minimum=minimum, around=limit, candidates=1, precision=0.05
    )
    assert 0.9 * limit < found.lower < found.upper < 1.05 * 1.05 * limit


def test_weights_in_single_precision_stay_so():
    module, loss, (x, y) = made("mlp")
    objective = tw.torch.ModuleObjective(module.float(), loss, (x.float(), y.float()))
    exact = tw.torch.ModuleObjective(module.double(), loss, (x, y))
    assert all(array.dtype == np.float32 for array in objective.start.values())
    run, other = (
        tw.descend(each, each.start, learning_rate=0.1, steps=5) for each in (objective, exact)
    )
    assert run.loss.dtype == run.final["0.weight"].dtype == np.float32
    np.testing.assert_allclose(run.loss, other.loss, rtol=1e-5)
    top = tw.sharpness(objective, objective.start, tolerance=1e-3)
    assert top.converged
    assert abs(top.value - tw.sharpness(exact, exact.start).value) <= top.error


# --- data ----------------------------------------------------------------------------------------


class Pairs(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        return self.x[place], self.y[place]


def shuffled(x, y):
    return torch.utils.data.DataLoader(Pairs(x, y), batch_size=3, shuffle=True)


@pytest.mark.parametrize(
    ("given", "batch_size"),
    [
        (lambda x, y: (x, y), 3),
        (lambda x, y: [(x[:2], y[:2]), (x[2:], y[2:])], None),
        (shuffled, None),
        (Pairs, 4),
        (torch.utils.data.TensorDataset, 2),
        (lambda x, y: (x.numpy(), y.numpy()), 5),
    ],
)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_batches_are_summed_with_the_right_weights(given, batch_size, reduction):
    """Oracle: all in one batch."""
    module, _, (x, y) = made("convolutions")
    loss = nn.CrossEntropyLoss(reduction=reduction)
    whole = tw.torch.ModuleObjective(module, loss, (x, y))
    parts = tw.torch.ModuleObjective(module, loss, given(x, y), batch_size)
    start, direction = whole.start, jax.tree.map(np.cos, whole.start)
    assert whole.samples == parts.samples == 7
    for one, other in (
        (whole(start), parts(start)),
        (flat(whole.gradient(start)), flat(parts.gradient(start))),
        (flat(whole.hvp(start, direction)), flat(parts.hvp(start, direction))),
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13 * np.max(np.abs(one)))


def test_no_more_than_a_batch_is_looked_at_together():
    seen, (module, loss, data) = set(), made("mlp")

    def watched(outputs, targets):
        seen.add(len(outputs))
        return loss(outputs, targets)

    objective = tw.torch.ModuleObjective(module, watched, data, batch_size=3)
    tw.sharpness(objective, objective.start)
    objective.gradient(objective.start)
    assert max(seen) == 3


def test_several_inputs_are_arguments():
    bilinear = nn.Bilinear(3, 2, 1).double()
    inputs, targets = (normal(7, 3), normal(7, 2)), normal(7, 1)
    named = {"input1": inputs[0], "input2": inputs[1]}
    values = [
        float(objective(objective.start))
        for objective in (
            tw.torch.ModuleObjective(bilinear, F.mse_loss, [(each, targets)])
            for each in (inputs, named)
        )
    ]
    expected = F.mse_loss(bilinear(*inputs), targets).item()
    assert values == pytest.approx([expected, expected], rel=1e-14)


# --- the module ----------------------------------------------------------------------------------


def test_nothing_is_changed():
    """Neither the module, nor torch's random numbers, nor its settings."""
    module, loss, (x, y) = made("encoder")
    before = {name: each.clone() for name, each in module.state_dict().items()}
    random, fast = torch.get_rng_state(), torch.backends.mha.get_fastpath_enabled()
    flash = torch.backends.cuda.flash_sdp_enabled()
    objective = tw.torch.ModuleObjective(module, loss, shuffled(x, y))
    tw.descend(objective, objective.start, learning_rate=0.1, steps=2)
    tw.sharpness(objective, objective.start)
    assert torch.equal(random, torch.get_rng_state())
    assert fast == torch.backends.mha.get_fastpath_enabled()
    assert flash == torch.backends.cuda.flash_sdp_enabled()
    assert all(each.requires_grad and each.grad is None for each in module.parameters())
    for name, each in module.state_dict().items():
        assert torch.equal(each, before[name])


def test_weights_go_back_and_the_objective_stays_what_it_was():
    module, loss, (x, y) = made("frozen")
    objective = tw.torch.ModuleObjective(module, loss, (x, y))
    held, before = module[0].weight.clone(), float(objective(objective.start))
    run = tw.descend(objective, module, learning_rate=0.1, steps=20)
    tw.torch.load_(module, run.final)
    assert loss(module(x), y).item() == pytest.approx(run.loss[-1], rel=1e-13)
    assert torch.equal(module[0].weight, held)
    assert float(objective(objective.start)) == before
    assert objective.value_and_gradient(module)[0] == pytest.approx(run.loss[-1], rel=1e-13)
    assert set(objective.start) == {"0.bias", "2.weight", "2.bias"}


def test_tied_parameters_are_one():
    objective = tw.torch.ModuleObjective(*made("tied"))
    assert set(objective.start) == {"up.weight", "up.bias"}


def test_kinks_of_torchs_own_parts_are_known():
    assert tw.torch.ModuleObjective(*made("mlp")).smooth
    assert not tw.torch.ModuleObjective(*made("mlp"), smooth=False).smooth
    relu = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).double()
    assert not tw.torch.ModuleObjective(relu, F.mse_loss, SQUARES).smooth
    assert not tw.torch.ModuleObjective(made("mlp")[0], F.l1_loss, SQUARES).smooth


def test_it_prints_in_a_line():
    objective = tw.torch.ModuleObjective(*made("mlp"))
    assert repr(objective) == "ModuleObjective(weights=26, samples=7)"
    assert float(objective(objective.start)) == float(objective({**objective.start}))


def test_a_product_loads_no_computer_algebra():
    """In a process of its own: torch loads SymPy where `autograd.grad` is given vectors."""
    program = (
        "import sys, torch, thalweg as tw\n"
        "module, x = torch.nn.Linear(3, 1), torch.ones(4, 3)\n"
        "loss = torch.nn.functional.mse_loss\n"
        "objective = tw.torch.ModuleObjective(module, loss, (x, x[:, :1]))\n"
        "objective.hvp(objective.start, objective.start)\n"
        "print('sympy' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert told.stdout.split() == ["False"], told.stderr
