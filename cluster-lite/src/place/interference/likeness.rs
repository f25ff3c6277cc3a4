//! How alike two services are: what a measurement of one says of the other.

use super::{ServiceId, Uses};

/// What is known of a service before anybody is beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its name, once in a predictor.
    pub name: String,
    /// What it runs, such as a model's name: services of one family are alike.
    pub family: String,
    /// Samples it works on at once.
    pub batch: Option<u32>,
    /// What it uses of a GPU alone; absent where nobody profiled it.
    pub uses: Option<Uses>,
}

/// Weights of what makes two services alike. The covariance of ln slowdown of (victim a, neighbour b) and (c, d) is, up to
/// a scale that the measurements give,
///
/// ```text
/// l(a, c) l(b, d) + single (l(a, c) + l(b, d)),    l(x, y) = common + [same family] e^(-(log2 batch)^2 / 2 doublings^2) + own [x = y]
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likeness {
    /// What all services have in common, against a family's 1.
    pub common: f64,
    /// How many doublings of the batch two services of a family may differ and are still alike.
    pub doublings: f64,
    /// What a service has to itself.
    pub own: f64,
    /// Weight of victim and neighbour each for itself, against that of the pair.
    pub single: f64,
    /// Variance of a measurement against that of the likeness.
    pub noise: f64,
}

impl Default for Likeness {
    /// The likeliest of [`Likeness::grid`] on Gavel's P100 table, which is close to the likeliest on the two others.
    fn default() -> Self {
        Self { common: 0.3, doublings: 3.0, own: 0.1, single: 0.3, noise: 0.1 }
    }
}

impl Likeness {
    /// Those from which measurements may choose the likeliest.
    pub fn grid() -> impl Iterator<Item = Self> {
        let doublings = [1.5, 3.0].into_iter();
        let own = doublings
            .flat_map(|doublings| [0.03, 0.1, 0.3].map(|own| Self { doublings, own, ..Self::default() }));
        own.flat_map(|likeness| [0.03, 0.1].map(|noise| Self { noise, ..likeness }))
    }

    /// l(one, other).
    fn of(&self, one: &Service, other: &Service) -> f64 {
        let family = if one.family == other.family { self.batches(one.batch, other.batch) } else { 0.0 };
        self.common + family + if one.name == other.name { self.own } else { 0.0 }
    }

    fn batches(&self, one: Option<u32>, other: Option<u32>) -> f64 {
        let (Some(one), Some(other)) = (one, other) else { return 1.0 };
        let doublings = (f64::from(one) / f64::from(other)).log2();
        (-(doublings / self.doublings).powi(2) / 2.0).exp()
    }

    /// Covariance of two pairs from the likenesses of their victims and of their neighbours.
    pub(super) fn pair(&self, victims: f64, neighbours: f64) -> f64 {
        victims * neighbours + self.single * (victims + neighbours)
    }
}

/// The known services and how alike each two are.
#[derive(Clone, Debug)]
pub(super) struct Kin {
    likeness: Likeness,
    services: Vec<Service>,
    /// Of each service with those before it and itself.
    alike: Vec<Vec<f64>>,
}

impl Kin {
    pub(super) const fn new(likeness: Likeness) -> Self {
        Self { likeness, services: Vec::new(), alike: Vec::new() }
    }

    pub(super) fn push(&mut self, service: Service) {
        self.services.push(service);
        let last = &self.services[self.services.len() - 1];
        self.alike.push(self.services.iter().map(|other| self.likeness.of(last, other)).collect());
    }

    pub(super) const fn likeness(&self) -> &Likeness {
        &self.likeness
    }

    pub(super) fn services(&self) -> &[Service] {
        &self.services
    }

    pub(super) fn alike(&self, one: ServiceId, other: ServiceId) -> f64 {
        let (early, late) = if one < other { (one, other) } else { (other, one) };
        self.alike[late.index()][early.index()]
    }

    /// Covariance of the slowdowns of two pairs (victim, neighbour).
    pub(super) fn pairs(&self, one: (ServiceId, ServiceId), other: (ServiceId, ServiceId)) -> f64 {
        self.likeness.pair(self.alike(one.0, other.0), self.alike(one.1, other.1))
    }

    /// What a service uses; always busy if nobody profiled it.
    pub(super) fn uses(&self, id: ServiceId) -> Uses {
        self.services[id.index()].uses.unwrap_or_default()
    }
}
