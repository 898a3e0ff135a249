(* Scripts: what a certificate becomes, and the theorem about the checker: whatever it accepts is so. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Rules Checker Existence Completeness Combinations Models Fields.
Import ListNotations.
Open Scope R_scope.

Inductive ending := Proved | Refuted (m : model) | Crossed (m : model) | Unique (f : family) | Independent (x : witness)
| Curled (k : measure) (i : index) (L : ep) (m : model).
Record script := Script { given_ : assumptions; parts : list part; end_ : ending }.
Fixpoint learn_all (l : list part) (known : list side) : list side :=
  match l with [] => known | c :: l => learn_all l (learn c known) end.
Definition check (s : script) : bool :=
  ordered (definitions (assumed (given_ s))) && match end_ s with
  | Proved => accept (given_ s) (parts s)
  | Refuted m => match rev (parts s) with
      | c :: before => valid m && accept (given_ s) (rev before) && refutes m (batch m (given_ s)) (given_ s) (learn_all (rev before) []) c
      | [] => false end
  | Crossed m => match rev (parts s) with
      | c :: before => valid m && valid (turned m) && accept (given_ s) (rev before)
          && refutes m (batch m (given_ s)) (given_ s) (learn_all (rev before) []) c
      | [] => false end
  | Unique f => match rev (parts s) with
      | c :: before => accept (given_ s) (rev before) && solves (given_ s) (learn_all (rev before) []) c f
      | [] => false end
  | Independent x => match rev (parts s) with
      | c :: before => accept (given_ s) (rev before) && independent_of_all (given_ s) (learn_all (rev before) []) c x
      | [] => false end
  | Curled k i L m => curled k i L m end.
(* What a script says: its parts hold in every setting; or there is a setting in which the last one fails; or one where it
   fails if the generic function 0 in it is the score function along another direction; or a function
   of k1 makes the last one hold in all settings just where it is one of a family; or in no way is its left side less its
   right one a combination of the gradients of the KLs and of a reward; or the field E[grad L] has a curl. *)
Definition meaning (s : script) : Prop :=
  match end_ s with
  | Proved => forall S par, (forall i, par i true <> 0) -> satisfied S par (given_ s) ->
      List.Forall (true_part S par) (parts s)
  | Refuted _ => exists S par c, (forall i, par i true <> 0) /\ satisfied S par (given_ s) /\
      nth_error (rev (parts s)) 0 = Some c /\ ~ true_part S par c
  | Crossed _ => exists m ok ok' n N c, let S := model_setting m ok n N in
      satisfied S (model_par m) (given_ s) /\ nth_error (rev (parts s)) 0 = Some c /\ ~ true_part S (model_par m) c /\
      forall l x, fn S 0 0 l x = Setting.s (model_setting (turned m) ok' n N) x
  | Unique f => exists c, nth_error (rev (parts s)) 0 = Some c /\ solved_by (given_ s) c f
  | Independent _ => exists c, nth_error (rev (parts s)) 0 = Some c /\ no_combination (given_ s) c
  | Curled k i L _ => has_curl k i L end.
Lemma learn_all_ok S par (P : forall i, par i true <> 0) l known : List.Forall (true_part S par) l ->
  List.Forall (fun z => dside S par z = 0) known -> List.Forall (fun z => dside S par z = 0) (learn_all l known).
Proof.
  revert known; induction l as [|c l IH]; intros known T K; [exact K|]. inversion_clear T as [|? ? T1 T2].
  cbn [learn_all]. apply IH; [exact T2|]. unfold learn, true_part in *.
  destruct (rel c); apply List.Forall_app; (split; [exact K|]); constructor; auto.
  rewrite app_ok, (minus_ok S par P), T1. ring.
Qed.
(* The one theorem: whatever the checker accepts is so. *)
Theorem check_sound s : check s = true -> meaning s.
Proof.
  unfold check, meaning. intros H. apply andb_prop in H as [O H]. revert H. destruct (end_ s) as [|m|m|f|x|k i L m].
  - intros H. now apply accept_sound.
  - destruct (rev (parts s)) as [|c before] eqn:B; [discriminate|]. intros H.
    apply andb_prop in H as [H R1]. apply andb_prop in H as [V A].
    set (n := batch m (given_ s)) in *. destruct (model_names m V n (given_ s) O) as [N D].
    exists (model_setting m V n N), (model_par m), c. pose proof (model_par_ok m) as P.
    assert (Sa : satisfied (model_setting m V n N) (model_par m) (given_ s)).
    { apply satisfies_ok; [exact D|]. unfold refutes in R1. now apply andb_prop in R1 as [R1 _]. }
    pose proof (accept_sound _ _ A _ _ P Sa) as T.
    pose proof (learn_all_ok _ _ P _ [] T (List.Forall_nil _)) as K.
    split; [exact P|]. split; [exact Sa|]. split; [reflexivity|]. eapply (proj2 (refutes_ok m V n N (given_ s) D _ _ K R1)).
  - destruct (rev (parts s)) as [|c before] eqn:B; [discriminate|]. intros H.
    apply andb_prop in H as [H R1]. apply andb_prop in H as [V A]. apply andb_prop in V as [V W].
    set (n := batch m (given_ s)) in *. destruct (model_names m V n (given_ s) O) as [N D].
    exists m, V, W, n, N, c. pose proof (model_par_ok m) as P.
    assert (Sa : satisfied (model_setting m V n N) (model_par m) (given_ s)).
    { apply satisfies_ok; [exact D|]. unfold refutes in R1. now apply andb_prop in R1 as [R1 _]. }
    pose proof (accept_sound _ _ A _ _ P Sa) as T.
    pose proof (learn_all_ok _ _ P _ [] T (List.Forall_nil _)) as K.
    split; [exact Sa|]. split; [reflexivity|]. split; [eapply (proj2 (refutes_ok m V n N (given_ s) D _ _ K R1))|].
    intros l x. apply second_score_is.
  - destruct (rev (parts s)) as [|c before] eqn:B; [discriminate|]. intros H. apply andb_prop in H as [A H].
    exists c. split; [reflexivity|]. apply (solves_ok _ _ _ _ H). intros S par P Sa.
    exact (learn_all_ok _ _ P _ [] (accept_sound _ _ A _ _ P Sa) (List.Forall_nil _)).
  - destruct (rev (parts s)) as [|c before] eqn:B; [discriminate|]. intros H. apply andb_prop in H as [A H].
    exists c. split; [reflexivity|]. apply (independent_ok _ _ _ _ H). intros S par P Sa.
    exact (learn_all_ok _ _ P _ [] (accept_sound _ _ A _ _ P Sa) (List.Forall_nil _)).
  - apply curled_ok.
Qed.
(* and what it says is not said of nothing: in any setting names can be given what they stand for *)
Theorem names_can_be_given s : check s = true -> forall S par, exists N, defined (with_names S N) par (definitions (assumed (given_ s))).
Proof. unfold check. intros H S par. apply andb_prop in H as [O _]. now apply names_exist. Qed.
