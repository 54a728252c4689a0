"""β of Eq. 8 per data set, against the divisors of the KL term in the published program."""

from pvera.report import published
from pvera.study.protocol import PUBLISHED_BETA

DIVISORS = {
    "caltech101": 10**16,
    "cifar": 10**6,
    "clevr_count": 10**6,
    "clevr_dist": 10**8,
    "diabetic_retinopathy": 10**6,
    "dmlab": 10**16,
    "dsprites_loc": 10**8,
    "dsprites_ori": 10**10,
    "dtd": 10**16,
    "eurosat": 10**6,
    "kitti": 10**12,
    "oxford_flowers102": 10**8,
    "oxford_iiit_pet": 10**12,
    "patch_camelyon": 10**6,
    "resisc45": 10**6,
    "smallnorb_azi": 10**6,
    "smallnorb_ele": 10**6,
    "sun397": 10**12,
    "svhn": 10**8,
}


def test_beta_is_the_inverse_of_the_divisor_on_each_of_the_19_data_sets():
    assert PUBLISHED_BETA.keys() == DIVISORS.keys() == set(published.DATASETS) and len(DIVISORS) == 19
    for dataset, divisor in DIVISORS.items():
        assert PUBLISHED_BETA[dataset] == 1 / divisor, dataset
