"""MinAtar (Young and Tian, 2019): five small games, a network, configs."""
