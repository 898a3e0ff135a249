(* Words in which the headline theorems are written, and how they follow from what the checker accepted. *)
From Coq Require Import Reals List Lra ZArith QArith Qreals String.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Stepwise Ring Statements Rules Checker Completeness Combinations Models Fields Scripts Parts.
Import ListNotations.
Open Scope R_scope.

Section Words.
Variable S : setting.
Notation X := (outcome S).
Definition KL (a b : X -> R) : R := Sum (outcomes S) (fun x => a x * (ln (a x) - ln (b x))).
Definition grad_reverse_KL : R := Derive (fun t => KL (q S t) (p S)) (theta S).   (* grad KL(q||p) *)
Definition grad_forward_KL : R := Derive (fun t => KL (p S) (q S t)) (theta S).   (* grad KL(p||q) *)
(* a loss: of log q, which theta moves, of a frozen copy of it, and of the outcome *)
Definition loss := R -> R -> X -> R.
Definition gradient_at (L : loss) (x : X) : R := Derive (fun t => L (ln (q S t x)) (ln (q0 S x)) x) (theta S).
Definition average (m : measure) (f : X -> R) : R := Sum (support S m 0) (fun x => density S m (theta S) x * f x).
(* the expected gradient of a loss: differentiate, then average *)
Definition expected_gradient (m : measure) (L : loss) : R := average m (gradient_at L).
(* the gradient of an expectation, live in measure and integrand: average, then differentiate *)
Definition gradient_of_mean (f : R -> X -> R) : R :=
  Derive (fun t => Sum (outcomes S) (fun x => q S t x * f (ln (q S t x)) x)) (theta S).
Definition k1 : loss := fun l _ x => l - ln (p S x).
Definition k2 : loss := fun l f x => k1 l f x ^ 2 / 2.
Definition k3 : loss := fun l f x => exp (- k1 l f x) - 1 + k1 l f x.
Definition rho : loss := fun l _ x => exp (l - ln (mu S x)).
Definition sg (L : loss) : loss := fun _ f x => L f f x.
Definition times (A B : loss) : loss := fun l f x => A l f x * B l f x.
(* what a loss is worth at the policy of this theta *)
Definition now (L : loss) (x : X) : R := L (ln (q0 S x)) (ln (q0 S x)) x.
Lemma losses par m A a : (forall t x, A (ln (q S t x)) (ln (q0 S x)) x = held S par a t (alone S x)) ->
  expected_gradient m A = mean S m Single (grad S (held S par a)).
Proof.
  intros H. unfold expected_gradient, average, mean, mean_at. cbn [draws E spread stepwise]. apply Sum_ext; intros x _. f_equal.
  apply Derive_ext; intros t. apply H.
Qed.
Definition sample_at_hand : X := ([], here S 0).
Lemma at_hand L : gradient_at L sample_at_hand = expected_gradient Msample L.
Proof. unfold expected_gradient, average, sample_at_hand. cbn [support Sum density]. ring. Qed.
(* over the steps of a sequence: a sum over sequences of a sum over their tokens *)
Definition step_average (m : measure) (f : place -> R) : R :=
  Sum (support S m 0) (fun y => density S m (theta S) y * Sum (places y) f).
(* the expected gradient of a loss of each token, given its prefix *)
Definition expected_step_gradient (m : measure) (L : loss) : R := step_average m (fun c => gradient_at L (now_ c)).
Definition at_step (c : place) (y : X) : world S := there S c y (nobody S).
Lemma step_averages m f F : (forall c y, f c = F (at_step c y)) -> step_average m f = mean S m Steps F.
Proof.
  intros H. unfold mean. rewrite stepwise_mean by reflexivity. apply Sum_ext; intros y _. f_equal. apply Sum_ext; intros c _. apply H.
Qed.
Lemma step_losses par m A a : (forall t c y, A (ln (q S t (now_ c))) (ln (q0 S (now_ c))) (now_ c) = held S par a t (at_step c y)) ->
  expected_step_gradient m A = mean S m Steps (grad S (held S par a)).
Proof. intros H. apply step_averages. intros c y. apply Derive_ext; intros t. apply H. Qed.
(* what is left, averaged given the prefix u: over the next token and all that follows it *)
Definition given_prefix (m : measure) (f : place -> R) (u : list (token S)) : R :=
  Sum (next S u) (fun a => next_density S m (theta S) u a * Sum (walk (next S) (more S - List.length u) (u ++ [a])) (fun v =>
    density S m (theta S) (u ++ [a], v) * f (Place ([], u) (u, [a]) (u ++ [a], v)))).
(* KL(q||p) of the next token, given the prefix u *)
Definition next_KL (u : list (token S)) : R :=
  Sum (next S u) (fun a => next_q S (theta S) u a * (ln (next_q S (theta S) u a) - ln (next_p S u a))).
Lemma given_prefix_of_a_token u : given_prefix Mq (fun c => now k1 (now_ c)) u = next_KL u.
Proof.
  unfold given_prefix, next_KL. apply Sum_ext; intros a _. cbn [now_ next_density]. f_equal.
  rewrite (Sum_ext _ _ (fun v => now k1 (u, [a]) * product (next_density S Mq (theta S)) (u ++ [a]) v)).
  - rewrite Sum_scal, mass_after by reflexivity. unfold now, k1, q0, q, p. cbn [fst snd product]. rewrite !Rmult_1_r. reflexivity.
  - intros v _. rewrite density_product by reflexivity. cbn [fst snd]. ring.
Qed.
Lemma averages m f F : (forall x, f x = F (alone S x)) -> average m f = mean S m Single F.
Proof. intros H. unfold average, mean, mean_at. cbn [draws E spread stepwise]. apply Sum_ext; intros x _. f_equal. apply H. Qed.
End Words.

(* with a given function of a segment *)
Definition with_any (S : setting) (A : outcome S -> R) : setting :=
  {| token := token S; next := next S; more := more S; starts := starts S; here := here S; here_ok := here_ok S;
     theta := theta S; next_q := next_q S; next_p := next_p S; next_mu := next_mu S; next_q_pos := next_q_pos S;
     next_q_sum := next_q_sum S; next_q_diff := next_q_diff S; next_p_pos := next_p_pos S; next_p_sum := next_p_sum S;
     next_mu_pos := next_mu_pos S; next_mu_sum := next_mu_sum S; next_old := next_old S; next_old_pos := next_old_pos S; next_old_sum := next_old_sum S; paid := paid S;
     any := fun _ l => match l with x :: _ => A x | [] => 0 end; fn := fn S; fn_diff := fn_diff S; names := names S; size := size S; size_ok := size_ok S |}.

Definition last_holds S par (l : list part) : Prop := match rev l with c :: _ => true_part S par c | [] => True end.
Lemma satisfied_nothing S par : satisfied S par (Assume (Premises [] [] None [] []) [] []).
Proof. now apply satisfied_free. Qed.
Lemma last_ok s : meaning s -> end_ s = Proved -> forall S par, (forall i, par i true <> 0) ->
  satisfied S par (given_ s) -> last_holds S par (parts s).
Proof.
  unfold meaning, last_holds. intros M P S par ok A. rewrite P in M. pose proof (M S par ok A) as F.
  rewrite List.Forall_forall in F. destruct (rev (parts s)) as [|c l] eqn:B; [easy|].
  apply F, in_rev. rewrite B. now left.
Qed.

Lemma along_log_q (f f' : R -> R) c l : (forall k, is_derive f k (f' k)) -> is_derive (fun l => f (l - c)) l (f' (l - c)).
Proof.
  intros D. rewrite <- (Rmult_1_r (f' (l - c))). apply (derive_comp f); [apply D|].
  apply (is_derive_ext (fun l => l + - c)); [reflexivity|]. replace 1 with (1 + 0) by ring.
  apply derive_plus; [apply (is_derive_id (K := R_AbsRing))|apply derive_const].
Qed.
Lemma last_unique s f : meaning s -> end_ s = Unique f -> given_ s = Assume (Premises [] [] None [] []) [] [] ->
  forall par g, (forall i, par i true <> 0) -> jets g ->
    (forall S, of_k1 S g -> last_holds S par (parts s)) <->
    exists b, forall k, g O k = den (at_k par k) (known_part f) + poly (order f) b k.
Proof.
  unfold meaning, last_holds. intros M E A par g ok J. rewrite E, A in M. destruct M as [c [C M]].
  destruct (rev (parts s)) as [|c' l]; [discriminate|]. cbn in C. injection C as ->.
  rewrite <- (M par g ok (fun i I => match I with end) J). split; intros H S G; [intros _|]; apply H; auto.
  apply satisfied_nothing.
Qed.

Definition ones : nat -> bool -> R := fun _ _ => 1.
Definition only_parameter (c : R) : nat -> bool -> R := fun _ nz => if nz then 1 else c.

(* values of data in plain words *)
Lemma minus_one a : -1 * a = - a. Proof. ring. Qed.
Lemma half : Q2R (1 # 2) = / 2. Proof. unfold Q2R; cbn; field. Qed.
Lemma power_2 v x : invertible v = false -> power v x 2 = x ^ 2. Proof. intros H; unfold power; now rewrite H. Qed.
Ltac value :=
  intros; unfold times, rho, sg, now, k3, k2, k1, held, as_loss, env, only_parameter, alone, at_step, there, at_place;
  cbn [den dterm dlin dmon val scope Setting.add nobody same_slot scode Nat.eqb Sum each];
  rewrite ?power_1, ?(power_2 (Sample Whole K1 false)), ?(power_2 (Sample Whole K1 true)), ?(power_2 (Sample Now K1 false)) by reflexivity;
  repeat first [rewrite Q2R_1|rewrite Q2R_m1|rewrite half|rewrite Rmult_1_l|rewrite Rmult_1_r|rewrite Rplus_0_r|
    rewrite exp_0|rewrite minus_one|rewrite exp_plus];
  unfold q0; first [reflexivity|ring|field].
Ltac data K :=
  cbn [true_part left right rel dside dproduct datom den dterm dlin dmon] in K;
  repeat first [rewrite power_1 in K|rewrite exp_0 in K|rewrite Q2R_1 in K|rewrite Rmult_1_l in K|rewrite Rmult_1_r in K|rewrite Rplus_0_r in K].
Ltac sums := apply Sum_ext; intros; cbn [density]; f_equal; value.
Ltac target :=
  apply Derive_ext; intros; cbn [moved den dterm dlin dmon];
  repeat first [rewrite exp_0|rewrite Q2R_1|rewrite Rmult_1_l|rewrite Rmult_1_r|rewrite Rplus_0_r];
  unfold moving, mean_at; cbn [draws E spread stepwise support]; sums.
Ltac loss_then K := etransitivity; [|etransitivity; [exact K|]]; [apply losses; value|].
